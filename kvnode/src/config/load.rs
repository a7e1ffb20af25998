//! Reading the configuration from flags, environment and file.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::error::ErrorKind;
use clap::{Arg, ArgAction, ArgMatches, Command};

use super::declare::{Config, KEYS, Key, Source};
use super::error::ConfigError;
use super::value::{Setting, Shape};

/// Prefix of all variables of the environment.
const PREFIX: &str = "KVNODE_";

const AFTER_HELP: &str = "\
Each setting is also a variable KVNODE_NAME_IN_CAPITALS and a key name_with_underscores of the file.
Flags outweigh variables, variables the file, the file the defaults.

Exit codes: 0 stopped on request; 1 the runtime failed; 2 bad flag, variable, key or value;
3 the configuration file cannot be read; 4 not loopback and not --insecure; 5 not implemented yet;
10 cannot listen for clients; 11 cannot listen for nodes; 12 the data directory is in use;
13 it is not a node's or was never finished; 14 a newer version wrote it; 15 it is damaged;
16 it cannot be read or written; 17 a thread cannot be started; 18 did not stop in time;
74 the store failed while running; 134 (SIGABRT) a defect of the program.";

/// What the program was called for.
#[derive(Debug)]
pub enum Invocation {
    /// To run a node.
    Run(Box<Config>),
    /// To print this and end.
    Print(String),
}

/// Reads the configuration. The environment and files are arguments so that tests have their own.
///
/// # Errors
/// [`ConfigError`] names what is wrong and where it stands.
pub fn load(
    arguments: impl IntoIterator<Item = OsString>,
    environment: impl Fn(&str) -> Option<OsString>,
    read_file: impl Fn(&Path) -> std::io::Result<String>,
) -> Result<Invocation, ConfigError> {
    let matches = match command().try_get_matches_from(arguments) {
        Ok(matches) => matches,
        Err(error) => return usage(&error),
    };
    let environment = |name: &str| environment(name).filter(|value| !value.is_empty());
    let file = matches.get_one::<String>("config").map(PathBuf::from);
    let file = file.or_else(|| environment("KVNODE_CONFIG").map(PathBuf::from));
    let table = match file {
        None => None,
        Some(file) => {
            let table = read_table(&file, read_file)?;
            Some((file, table))
        }
    };
    let sources = Sources { matches: &matches, environment, table: &table };
    let config = Config::gather(&sources)?.check()?;
    if matches.get_flag("print-config") {
        return Ok(Invocation::Print(config.to_toml()));
    }
    Ok(Invocation::Run(Box::new(config)))
}

fn command() -> Command {
    let version = env!("CARGO_PKG_VERSION");
    let mut command = Command::new("kvnode")
        .about("The ringkv storage node")
        .version(version)
        .after_help(AFTER_HELP)
        .arg(Arg::new("config").long("config").value_name("FILE").help("TOML file with settings"))
        .arg(
            Arg::new("print-config")
                .long("print-config")
                .action(ArgAction::SetTrue)
                .help("Print the effective configuration as TOML and end"),
        );
    for key in KEYS {
        // The command is made once in the life of a program, so that leaking its words costs nothing.
        let long: &'static str = key.name.replace('_', "-").leak();
        let mut argument = Arg::new(key.name).long(long).value_name("VALUE").help(key.help.trim());
        argument = match key.shape {
            Shape::One => argument.action(ArgAction::Set),
            Shape::Many => argument.action(ArgAction::Append),
            Shape::Switch => argument
                .action(ArgAction::Set)
                .num_args(0..=1)
                .require_equals(true)
                .default_missing_value("true"),
        };
        command = command.arg(argument);
    }
    command
}

/// What clap has to say: help and version are asked for, the rest is an error of one line.
fn usage(error: &clap::Error) -> Result<Invocation, ConfigError> {
    let text = error.render().to_string();
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => Ok(Invocation::Print(text)),
        _ => {
            let line = text.lines().next().unwrap_or_default();
            let reason = line.strip_prefix("error: ").unwrap_or(line).to_owned();
            Err(ConfigError::Usage { reason })
        }
    }
}

fn read_table(
    file: &Path,
    read_file: impl Fn(&Path) -> std::io::Result<String>,
) -> Result<toml::Table, ConfigError> {
    let text =
        read_file(file).map_err(|source| ConfigError::File { file: file.to_owned(), source })?;
    let table: toml::Table = text.parse().map_err(|error: toml::de::Error| {
        let line = error.span().map(|span| text[..span.start].matches('\n').count() + 1);
        let place = line.map(|line| format!("line {line}: ")).unwrap_or_default();
        let reason = format!("{place}{}", error.message().replace('\n', " "));
        ConfigError::Syntax { file: file.to_owned(), reason }
    })?;
    match table.keys().find(|name| KEYS.iter().all(|key| key.name != *name)) {
        Some(key) => Err(ConfigError::UnknownKey { file: file.to_owned(), key: key.clone() }),
        None => Ok(table),
    }
}

struct Sources<'a, E> {
    matches: &'a ArgMatches,
    environment: E,
    table: &'a Option<(PathBuf, toml::Table)>,
}

impl<E: Fn(&str) -> Option<OsString>> Source for Sources<'_, E> {
    fn value<T: Setting>(&self, key: &Key) -> Result<Option<T>, ConfigError> {
        if let Some(values) = self.matches.get_many::<String>(key.name) {
            let text = values.cloned().collect::<Vec<_>>().join(",");
            let place = format!("--{}", key.name.replace('_', "-"));
            return from_text(key, place, &text).map(Some);
        }
        let variable = format!("{PREFIX}{}", key.name.to_ascii_uppercase());
        if let Some(value) = (self.environment)(&variable) {
            let text = value.to_string_lossy();
            return from_text(key, variable, &text).map(Some);
        }
        if let Some((file, table)) = self.table
            && let Some(value) = table.get(key.name)
        {
            return match T::from_toml(value) {
                Some(value) => Ok(Some(value)),
                None => Err(ConfigError::Value {
                    place: format!("{}: {}", file.display(), key.name),
                    found: value.to_string(),
                    expected: key.expected.to_owned(),
                }),
            };
        }
        Ok(None)
    }
}

fn from_text<T: Setting>(key: &Key, place: String, text: &str) -> Result<T, ConfigError> {
    T::from_text(text).ok_or_else(|| ConfigError::Value {
        place,
        found: text.to_owned(),
        expected: key.expected.to_owned(),
    })
}
