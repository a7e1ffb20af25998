//! What is printed: tables or JSON on stdout, notes on stderr.

use std::io::{self, IsTerminal, Write};

use comfy_table::{Cell, Color, Table, presets};
use serde::Serialize;

use crate::exit::{Exit, Failure};

/// Form of the data on stdout.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// For people.
    #[default]
    Table,
    /// For programs.
    Json,
}

/// Prints text as it is.
pub fn text(text: &str) -> Result<(), Failure> {
    raw(text.as_bytes())
}

/// Prints bytes as they are.
pub fn raw(bytes: &[u8]) -> Result<(), Failure> {
    let mut stdout = io::stdout().lock();
    let written = stdout.write_all(bytes).and_then(|()| stdout.flush());
    written.map_err(|error| Failure::of_stdout(&error))
}

/// Prints a document.
pub fn json(document: &impl Serialize) -> Result<(), Failure> {
    let json = serde_json::to_string_pretty(document)
        .map_err(|error| Failure::new(Exit::CheckFailed, error.to_string()))?;
    text(&format!("{json}\n"))
}

/// Prints a line for people to stderr.
pub fn note(line: &str) {
    // With stderr gone there is nobody to tell.
    let _ = writeln!(io::stderr(), "{line}");
}

/// A table without lines, with these column names.
pub fn table(columns: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header(columns.iter().map(|name| name.to_uppercase()));
    if !is_coloured() {
        table.force_no_tty();
    }
    table
}

/// Prints a table.
pub fn print_table(table: &Table) -> Result<(), Failure> {
    text(&render(table))
}

/// A table as text, without blanks at both ends of lines.
pub fn render(table: &Table) -> String {
    let mut text = String::new();
    for line in table.lines() {
        text.push_str(line.strip_prefix(' ').unwrap_or(&line).trim_end());
        text.push('\n');
    }
    text
}

/// A cell in red, where colours are wanted.
pub fn alarming(text: &str) -> Cell {
    Cell::new(text).fg(Color::Red)
}

/// Asks on the terminal; without one the answer is yes.
pub fn confirm(question: &str, is_confirmed: bool) -> Result<(), Failure> {
    if is_confirmed || !io::stdin().is_terminal() || !io::stderr().is_terminal() {
        return Ok(());
    }
    let _ = write!(io::stderr(), "{question} [y/N] ");
    let mut answer = String::new();
    let read = io::stdin().read_line(&mut answer);
    match read {
        Ok(_) if matches!(answer.trim(), "y" | "Y" | "yes") => Ok(()),
        _ => Err(Failure::new(Exit::CheckFailed, "not confirmed, nothing was changed")),
    }
}

fn is_coloured() -> bool {
    let is_refused = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    !is_refused && io::stdout().is_terminal()
}
