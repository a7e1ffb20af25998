//! The outcome of a simulation, and its forms: tables for people, JSON and CSV for programs.

use serde_json::{Map, Value, json};

use crate::exit::{Exit, Failure};
use crate::output;

/// Longer sheets are not printed among others: they would push them off the screen.
const ROWS_PRINTED_MAX: usize = 40;

/// Everything that one command found out.
#[derive(Clone, Debug, Default)]
pub struct Study {
    /// Its name, as on the command line.
    pub name: &'static str,
    /// What it shows, for a heading.
    pub title: String,
    /// How to read it, for the report.
    pub lead: String,
    /// Under which settings.
    pub settings: Value,
    /// The numbers. The first sheet is the main one.
    pub sheets: Vec<Sheet>,
    /// SVG documents, for the report.
    pub charts: Vec<String>,
    /// What the numbers say, in sentences.
    pub notes: Vec<String>,
}

/// A table with a name.
#[derive(Clone, Debug)]
pub struct Sheet {
    /// Its name.
    pub name: &'static str,
    /// Names of the columns.
    pub columns: Vec<String>,
    /// The rows, each as long as `columns`.
    pub rows: Vec<Vec<Cell>>,
}

/// One value, that people and programs see differently.
#[derive(Clone, Debug, PartialEq)]
pub enum Cell {
    /// Words.
    Text(String),
    /// A whole number.
    Count(u64),
    /// A number, shown with this many decimals.
    Number(f64, usize),
    /// A fraction of one, shown in percent with this many decimals.
    Percent(f64, usize),
    /// A number of bytes.
    Bytes(u64),
    /// Nothing to say.
    Missing,
}

impl Sheet {
    /// A table without rows.
    pub fn new(name: &'static str, columns: &[&str]) -> Self {
        let columns = columns.iter().map(|column| (*column).to_owned()).collect();
        Self { name, columns, rows: Vec::new() }
    }

    /// Adds a row.
    pub fn row(&mut self, cells: impl IntoIterator<Item = Cell>) {
        let row: Vec<Cell> = cells.into_iter().collect();
        assert_eq!(row.len(), self.columns.len(), "sheet {}", self.name);
        self.rows.push(row);
    }

    fn to_json(&self) -> Value {
        let row = |row: &Vec<Cell>| {
            let fields = self.columns.iter().zip(row);
            Value::Object(fields.map(|(name, cell)| (key(name), cell.for_programs())).collect())
        };
        Value::Array(self.rows.iter().map(row).collect())
    }
}

/// A column's name as a program's key.
fn key(column: &str) -> String {
    column.replace([' ', '-', '/'], "_")
}

impl Cell {
    /// Words.
    pub fn text(text: impl Into<String>) -> Self {
        Self::Text(text.into())
    }

    /// As people read it.
    pub fn for_people(&self) -> String {
        match self {
            Self::Text(text) => text.clone(),
            Self::Count(count) => count.to_string(),
            Self::Number(number, decimals) => format!("{number:.decimals$}"),
            Self::Percent(fraction, decimals) => format!("{:.decimals$} %", fraction * 100.0),
            Self::Bytes(bytes) => in_bytes(*bytes),
            Self::Missing => "-".to_owned(),
        }
    }

    /// As programs read it: unrounded, fractions as fractions.
    fn for_programs(&self) -> Value {
        match self {
            Self::Text(text) => json!(text),
            Self::Count(count) | Self::Bytes(count) => json!(count),
            Self::Number(number, _) | Self::Percent(number, _) => json!(number),
            Self::Missing => Value::Null,
        }
    }
}

/// Bytes with a binary unit.
pub fn in_bytes(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
    let mut amount = bytes as f64;
    let mut unit = 0;
    while amount >= 1024.0 && unit + 1 < UNITS.len() {
        amount /= 1024.0;
        unit += 1;
    }
    if unit == 0 { format!("{bytes} B") } else { format!("{amount:.1} {}", UNITS[unit]) }
}

/// Prints tables and remarks, or the named sheet alone. Long sheets are printed only by name.
pub fn print_tables(study: &Study, name: Option<&str>) -> Result<(), Failure> {
    if let Some(name) = name {
        return output::text(&as_table(named(study, name)?));
    }
    let mut text = format!("{}\n", study.title);
    for sheet in &study.sheets {
        text.push_str(&format!("\n[{}]\n", sheet.name));
        let count = sheet.rows.len();
        if count > ROWS_PRINTED_MAX {
            text.push_str(&format!("{count} rows: --sheet '{}'\n", sheet.name));
        } else {
            text.push_str(&as_table(sheet));
        }
    }
    if !study.notes.is_empty() {
        text.push('\n');
    }
    for note in &study.notes {
        text.push_str(&format!("- {note}\n"));
    }
    output::text(&text)
}

fn as_table(sheet: &Sheet) -> String {
    let columns: Vec<&str> = sheet.columns.iter().map(String::as_str).collect();
    let mut table = output::table(&columns);
    for row in &sheet.rows {
        table.add_row(row.iter().map(Cell::for_people));
    }
    output::render(&table)
}

fn named<'a>(study: &'a Study, name: &str) -> Result<&'a Sheet, Failure> {
    let found = study.sheets.iter().find(|sheet| sheet.name == name);
    found.ok_or_else(|| Failure::usage(format!("no sheet {name}; there are {}", names(study))))
}

fn names(study: &Study) -> String {
    study.sheets.iter().map(|sheet| sheet.name).collect::<Vec<_>>().join(", ")
}

/// Prints one document with everything but the charts.
pub fn print_json(study: &Study) -> Result<(), Failure> {
    let sheets: Map<String, Value> =
        study.sheets.iter().map(|sheet| (key(sheet.name), sheet.to_json())).collect();
    output::json(&json!({
        "study": study.name,
        "settings": study.settings,
        "sheets": sheets,
        "notes": study.notes,
    }))
}

/// Prints one sheet: the named one, or the first. A CSV file is one table.
pub fn print_csv(study: &Study, name: Option<&str>) -> Result<(), Failure> {
    let sheet = match (name, study.sheets.first()) {
        (Some(name), _) => named(study, name)?,
        (None, Some(first)) => first,
        (None, None) => return Ok(()),
    };
    let mut writer = csv::Writer::from_writer(Vec::new());
    let failed = |error: csv::Error| Failure::new(Exit::CheckFailed, error.to_string());
    writer.write_record(sheet.columns.iter().map(|column| key(column))).map_err(failed)?;
    for row in &sheet.rows {
        let field = |cell: &Cell| match cell.for_programs() {
            Value::String(text) => text,
            Value::Null => String::new(),
            other => other.to_string(),
        };
        writer.write_record(row.iter().map(field)).map_err(failed)?;
    }
    let bytes = writer.into_inner();
    output::raw(&bytes.map_err(|error| Failure::new(Exit::CheckFailed, error.to_string()))?)?;
    if name.is_none() && study.sheets.len() > 1 {
        output::note(&format!(
            "note: this is sheet {}; --sheet takes {}",
            sheet.name,
            names(study)
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn people_read_units_and_programs_read_numbers() {
        let table = [
            (Cell::Percent(0.991_735_5, 2), "99.17 %", json!(0.991_735_5)),
            (Cell::Number(1.0, 3), "1.000", json!(1.0)),
            (Cell::Bytes(1023), "1023 B", json!(1023)),
            (Cell::Bytes(203 << 30), "203.0 GiB", json!(203_u64 << 30)),
            (Cell::Bytes(u64::MAX), "16384.0 PiB", json!(u64::MAX)),
            (Cell::Missing, "-", Value::Null),
        ];
        for (cell, people, programs) in table {
            assert_eq!((cell.for_people().as_str(), cell.for_programs()), (people, programs));
        }
    }
}
