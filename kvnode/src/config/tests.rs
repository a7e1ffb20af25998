use std::ffi::OsString;
use std::io;
use std::path::Path;
use std::time::Duration;

use super::*;

/// Loads with flags, variables and a file named `node.toml`.
fn load_from(
    flags: &[&str],
    variables: &[(&str, &str)],
    file: Option<&str>,
) -> Result<Invocation, ConfigError> {
    let mut arguments = vec!["kvnode"];
    if file.is_some() {
        arguments.extend(["--config", "node.toml"]);
    }
    arguments.extend(flags);
    let environment = |name: &str| {
        let found = variables.iter().find(|(other, _)| *other == name);
        found.map(|(_, value)| OsString::from(value))
    };
    let read = |path: &Path| match file {
        Some(text) if path == Path::new("node.toml") => Ok(text.to_owned()),
        Some(_) | None => Err(io::ErrorKind::NotFound.into()),
    };
    load(arguments.into_iter().map(OsString::from), environment, read)
}

fn config(flags: &[&str], variables: &[(&str, &str)], file: Option<&str>) -> Config {
    match load_from(flags, variables, file) {
        Ok(Invocation::Run(config)) => *config,
        other => panic!("{other:?} is no configuration"),
    }
}

#[test]
fn a_node_without_any_configuration_listens_on_loopback() {
    let config = config(&[], &[], None);
    assert_eq!(config.client_addr.to_string(), "127.0.0.1:7400");
    assert_eq!(config.peer_addr.to_string(), "127.0.0.1:7401");
    assert_eq!(config.value_bytes_max.get(), 1 << 20);
    assert_eq!(config.request_timeout, Duration::from_secs(5));
    assert_eq!(config.zone.as_str(), "default");
    assert!(!config.insecure);
}

#[test]
fn a_flag_outweighs_the_environment_and_that_the_file() {
    let file = Some("zone = 'file'\nname = 'file'\nweight = 7\nseeds = ['a:1', 'b:2']");
    let variables = [("KVNODE_ZONE", "variable"), ("KVNODE_NAME", "variable")];
    let config = config(&["--zone", "flag", "--seeds", "c:3,d:4", "--seeds=e:5"], &variables, file);
    assert_eq!(config.zone.as_str(), "flag");
    assert_eq!(config.name.as_str(), "variable");
    assert_eq!(config.weight.get(), 7);
    let seeds: Vec<_> = config.seeds.iter().map(HostPort::as_str).collect();
    assert_eq!(seeds, ["c:3", "d:4", "e:5"]);
}

#[test]
fn an_empty_variable_is_none() {
    let config = config(&[], &[("KVNODE_ZONE", ""), ("KVNODE_CONFIG", "")], None);
    assert_eq!(config.zone.as_str(), "default");
}

#[test]
fn the_file_may_be_named_by_the_environment() {
    let missing = load_from(&[], &[("KVNODE_CONFIG", "other.toml")], None);
    let error = missing.expect_err("there is no such file");
    assert_eq!(error.to_string(), "cannot read other.toml");
    assert_eq!(error.exit_code(), 3);
}

#[test]
fn every_setting_can_be_given_in_all_three_forms() {
    let printed = config(&[], &[], None).to_toml();
    let table: toml::Table = printed.parse().expect("the printed configuration is TOML");
    for (name, value) in &table {
        let text = match value {
            toml::Value::String(text) => text.clone(),
            toml::Value::Array(_) => continue,
            other => other.to_string(),
        };
        let flag = format!("--{}={text}", name.replace('_', "-"));
        let variable = format!("KVNODE_{}", name.to_ascii_uppercase());
        let by_flag = config(&[&flag], &[], None);
        let by_variable = config(&[], &[(&variable, &text)], None);
        assert_eq!(by_flag.to_toml(), printed, "{flag}");
        assert_eq!(by_variable.to_toml(), printed, "{variable}");
    }
    assert_eq!(config(&[], &[], Some(&printed)).to_toml(), printed);
}

#[test]
fn the_printed_configuration_means_the_same_when_it_is_read_back() {
    let flags = [
        "--name=n1",
        "--zone=z1",
        "--weight=3",
        "--client-addr=0.0.0.0:80",
        "--advertise-client-addr=n1.example:80",
        "--advertise-peer-addr=[::1]:81",
        "--seeds=n2:7401,n3:7401",
        "--insecure",
        "--value-bytes-max=16MiB",
        "--log-cache-bytes=1000",
        "--request-timeout=1500ms",
        "--log-format=json",
        "--log-level=info,kvnode=debug",
    ];
    let given = config(&flags, &[], None);
    assert_eq!(config(&[], &[], Some(&given.to_toml())), given);
    let mut printing = flags.to_vec();
    printing.push("--print-config");
    match load_from(&printing, &[], None) {
        Ok(Invocation::Print(text)) => assert_eq!(text, given.to_toml()),
        other => panic!("{other:?} prints nothing"),
    }
    assert!(given.to_toml().contains("value_bytes_max = \"16MiB\""), "{}", given.to_toml());
}

#[test]
fn what_is_wrong_is_named_in_one_line() {
    type Case<'a> = (&'a [&'a str], &'a [(&'a str, &'a str)], Option<&'a str>, u8, &'a str);
    let table: &[Case<'_>] = &[
        (&["--colour=red"], &[], None, 2, "--colour"),
        (&["stray"], &[], None, 2, "stray"),
        (&["--weight"], &[], None, 2, "--weight"),
        (&["--weight=0"], &[], None, 2, r#"--weight: "0" is not a whole number from 1"#),
        (&["--name=a b"], &[], None, 2, "--name"),
        (&["--insecure=perhaps"], &[], None, 2, "--insecure"),
        (&[], &[("KVNODE_WEIGHT", "x")], None, 2, "KVNODE_WEIGHT: \"x\" is not"),
        (&[], &[("KVNODE_REQUEST_TIMEOUT", "5")], None, 2, "a time such as"),
        (&[], &[], Some("wieght = 3"), 2, "node.toml: unknown key `wieght`"),
        (&[], &[], Some("[node]\nname = 'x'"), 2, "unknown key `node`"),
        (&[], &[], Some("weight = 'x'"), 2, "node.toml: weight"),
        (&[], &[], Some("weight = -1"), 2, "node.toml: weight"),
        (&[], &[], Some("name = 'a'\nzone = "), 2, "node.toml: line 2"),
        (&[], &[], Some("name = 'a'\nname = 'b'"), 2, "node.toml: line 2"),
        (&["--config=none.toml"], &[], None, 3, "cannot read none.toml"),
        (&["--client-addr=0.0.0.0:7400"], &[], None, 4, "--insecure"),
        (&["--peer-addr=10.0.0.1:7401"], &[], None, 4, "peer_addr 10.0.0.1:7401"),
        (&["--token-file=tokens"], &[], None, 5, "token_file is not implemented"),
        (&[], &[("KVNODE_TLS_KEY_FILE", "key.pem")], None, 5, "tls_key_file"),
        (&["--client-addr=0.0.0.0:1", "--insecure"], &[], None, 2, "advertise_client_addr"),
        (&["--client-addr=127.0.0.1:7401"], &[], None, 2, "must differ"),
        (&["--advertise-peer-addr=n1"], &[], None, 2, "--advertise-peer-addr"),
        (&["--advertise-peer-addr=n1:0"], &[], None, 2, "--advertise-peer-addr"),
        (&["--seeds=a:1,b"], &[], None, 2, "--seeds"),
        (&["--value-bytes-max=17MiB"], &[], None, 2, "value_bytes_max must be 1 to 16MiB"),
        (&["--value-bytes-max=0"], &[], None, 2, "value_bytes_max"),
        (&["--bodies-bytes-max=64KiB"], &[], None, 2, "bodies_bytes_max"),
        (&["--log-retain-bytes-max=1KiB"], &[], None, 2, "log_retain_bytes_max"),
        (&["--connections-max=0"], &[], None, 2, "connections_max must not be 0"),
        (&["--idle-timeout=0s"], &[], None, 2, "idle_timeout must not be 0"),
    ];
    for (flags, variables, file, code, part) in table {
        let error = match load_from(flags, variables, *file) {
            Err(error) => error,
            Ok(_) => panic!("{flags:?} {variables:?} {file:?} is taken"),
        };
        let line = error.to_string();
        assert!(line.contains(part), "{line:?} does not say {part:?}");
        assert!(!line.contains('\n'), "{line:?} is more than one line");
        assert_eq!(error.exit_code(), *code, "{line}");
    }
}

#[test]
fn help_and_version_are_printed_and_no_error() {
    for flag in ["--help", "--version"] {
        match load_from(&[flag], &[], None) {
            Ok(Invocation::Print(text)) => {
                assert!(text.contains("kvnode") || text.contains("ringkv"))
            }
            other => panic!("{flag}: {other:?}"),
        }
    }
}

#[test]
fn sizes_have_binary_units() {
    use super::value::Setting as _;
    let table = [
        ("0", Some(0)),
        ("4096", Some(4096)),
        ("64KiB", Some(64 << 10)),
        ("1 MiB", Some(1 << 20)),
        ("2GiB", Some(2 << 30)),
        ("1MB", None),
        ("-1", None),
        ("KiB", None),
        ("1.5MiB", None),
        ("99999999999999999GiB", None),
    ];
    for (text, want) in table {
        assert_eq!(ByteSize::from_text(text).map(ByteSize::get), want, "{text}");
    }
}
