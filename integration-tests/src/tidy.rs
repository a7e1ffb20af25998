//! Rules of the code base that a compiler does not check.

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};

    fn root() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_path_buf()
    }

    fn read(path: impl AsRef<Path>) -> String {
        let path = root().join(path);
        std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    }

    #[test]
    fn the_pure_crates_name_no_runtime_and_no_database() {
        let impure = ["tokio", "rocksdb", "axum", "reqwest", "hyper", "rustix", "socket2"];
        for name in ["placement", "migration", "kvcore"] {
            let manifest = read(format!("{name}/Cargo.toml"));
            let dependencies = manifest.split("[dev-dependencies]").next().unwrap();
            for line in dependencies.lines() {
                let dependency = line.split(['.', ' ', '=']).next().unwrap_or_default();
                assert!(!impure.contains(&dependency), "{name} depends on {dependency}");
            }
        }
    }

    #[test]
    fn dependencies_between_crates_point_one_way() {
        let order = ["placement", "migration", "kvcore", "kvapi", "kvnode", "kvctl"];
        let allowed: &[(&str, &[&str])] = &[
            ("placement", &[]),
            ("migration", &["placement"]),
            ("kvcore", &["placement", "migration"]),
            ("kvapi", &["placement"]),
            ("kvnode", &["placement", "migration", "kvcore", "kvapi"]),
            ("kvctl", &["placement", "kvapi"]),
        ];
        for (name, allowed) in allowed {
            let manifest = read(format!("{name}/Cargo.toml"));
            for other in order.iter().filter(|other| *other != name) {
                let named = manifest.lines().any(|line| line.starts_with(&format!("{other}.")));
                assert!(!named || allowed.contains(other), "{name} depends on {other}");
            }
        }
    }

    #[test]
    fn bincode_is_used_in_one_file() {
        let mut users = Vec::new();
        for name in ["placement", "migration", "kvcore", "kvapi", "kvnode", "kvctl"] {
            visit(&root().join(name).join("src"), &mut |path, text| {
                if text.contains("bincode::") {
                    users.push(path.to_path_buf());
                }
            });
        }
        assert_eq!(users, [root().join("kvcore/src/codec.rs")]);
    }

    #[test]
    fn the_main_file_of_the_node_stays_small() {
        let lines = read("kvnode/src/main.rs").lines().count();
        assert!(lines <= 60, "kvnode/src/main.rs has {lines} lines");
    }

    #[test]
    fn no_test_is_ignored_or_expected_to_panic() {
        let marks = [concat!("#[", "ignore"), concat!("#[", "should_panic")];
        for name in ["placement", "kvcore", "kvapi", "kvnode", "kvctl", "integration-tests"] {
            for folder in ["src", "tests"] {
                visit(&root().join(name).join(folder), &mut |path, text| {
                    for mark in marks {
                        assert!(!text.contains(mark), "{} has {mark}", path.display());
                    }
                });
            }
        }
    }

    fn visit(folder: &Path, see: &mut dyn FnMut(&Path, &str)) {
        let Ok(entries) = std::fs::read_dir(folder) else { return };
        for entry in entries.map(|entry| entry.unwrap().path()) {
            if entry.is_dir() {
                visit(&entry, see);
            } else if entry.extension().is_some_and(|extension| extension == "rs") {
                see(&entry, &std::fs::read_to_string(&entry).unwrap());
            }
        }
    }
}
