//! The report: one HTML document that needs nothing else, for a colleague's browser.

use super::study::{Cell, Sheet, Study};

const STYLE: &str = include_str!("report.css");

/// Rows of a sheet that are shown at once; the rest opens on a click.
const ROWS_SHOWN: usize = 16;

/// The document.
pub fn report(title: &str, lead: &str, studies: &[Study]) -> String {
    let contents: String = studies
        .iter()
        .enumerate()
        .map(|(number, study)| {
            format!("<li><a href=\"#s{number}\">{}</a></li>", escape(&study.title))
        })
        .collect();
    let sections: String = studies.iter().enumerate().map(|(n, study)| section(n, study)).collect();
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
         <title>{title}</title>\n<style>\n{STYLE}</style></head>\n<body>\n\
         <h1>{title}</h1>\n<p class=\"lead\">{lead}</p>\n<ol class=\"contents\">{contents}</ol>\n\
         {sections}</body>\n</html>\n",
        title = escape(title),
        lead = escape(lead),
    )
}

fn section(number: usize, study: &Study) -> String {
    let notes: String =
        study.notes.iter().map(|note| format!("<li>{}</li>", escape(note))).collect();
    let charts: String =
        study.charts.iter().map(|chart| format!("<figure>{chart}</figure>\n")).collect();
    let sheets: String = study.sheets.iter().map(table).collect();
    format!(
        "<section id=\"s{number}\">\n<h2>{}</h2>\n<p>{}</p>\n<ul class=\"notes\">{notes}</ul>\n\
         <div class=\"charts\">{charts}</div>\n{sections}\
         <details><summary>settings</summary><pre>{}</pre></details>\n</section>\n",
        escape(&study.title),
        escape(&study.lead),
        escape(&format!("{:#}", study.settings)),
        sections = sheets,
    )
}

fn table(sheet: &Sheet) -> String {
    let is_number = |column: usize| {
        let cells = sheet.rows.iter().filter_map(|row| row.get(column));
        cells.clone().next().is_some()
            && cells.into_iter().all(|cell| !matches!(cell, Cell::Text(_)))
    };
    let head = |(column, name): (usize, &String)| {
        let class = if is_number(column) { " class=\"n\"" } else { "" };
        format!("<th{class}>{}</th>", escape(name))
    };
    let head: String = sheet.columns.iter().enumerate().map(head).collect();
    let row = |row: &Vec<Cell>| {
        let cell = |cell: &Cell| {
            let class = if matches!(cell, Cell::Text(_)) { "" } else { " class=\"n\"" };
            format!("<td{class}>{}</td>", escape(&cell.for_people()))
        };
        format!("<tr>{}</tr>\n", row.iter().map(cell).collect::<String>())
    };
    let rows: String = sheet.rows.iter().map(row).collect();
    let table = format!(
        "<div class=\"scroll\"><table><caption>{}</caption><thead><tr>{head}</tr></thead>\
         <tbody>\n{rows}</tbody></table></div>\n",
        escape(sheet.name)
    );
    if sheet.rows.len() <= ROWS_SHOWN {
        return table;
    }
    let count = sheet.rows.len();
    format!("<details><summary>{}: {count} rows</summary>{table}</details>\n", escape(sheet.name))
}

/// Text that stands for itself in HTML and SVG.
pub fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
