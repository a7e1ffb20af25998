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

/// A moment given in unix milliseconds, in UTC to the second.
pub fn utc(unix_ms: u64) -> String {
    let seconds = unix_ms / 1000;
    let (days, of_day) = (seconds / 86_400, seconds % 86_400);
    let (year, month, day) = civil(days);
    let (hour, minute, second) = (of_day / 3600, of_day / 60 % 60, of_day % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

/// Year, month and day of a number of days since 1970, by the algorithm `civil_from_days` of Howard
/// Hinnant, "chrono-Compatible Low-Level Date Algorithms": years begin in March.
fn civil(days: u64) -> (u64, u64, u64) {
    let shifted = days + 719_468;
    let (era, of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let from_march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
    (year_of_era + era * 400 + u64::from(month <= 2), month, day)
}

/// A time for people: seconds, minutes or hours.
pub fn span(milliseconds: u64) -> String {
    match milliseconds.div_ceil(1000) {
        seconds @ 0..120 => format!("{seconds} s"),
        seconds @ 120..7200 => format!("{} min", seconds.div_ceil(60)),
        seconds => format!("{:.1} h", seconds as f64 / 3600.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_and_times_are_told_for_people() {
        let table = [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_399_999, "2000-02-28T23:59:59Z"),
            (951_825_600_000, "2000-02-29T12:00:00Z"),
            (1_700_000_000_000, "2023-11-14T22:13:20Z"),
            (4_102_444_800_000, "2100-01-01T00:00:00Z"),
        ];
        for (unix_ms, want) in table {
            assert_eq!(utc(unix_ms), want);
        }
        assert_eq!(
            [0, 1, 119_000, 120_000, 7_200_000].map(span),
            ["0 s", "1 s", "119 s", "2 min", "2.0 h"]
        );
    }
}
