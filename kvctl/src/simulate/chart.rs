//! Charts as SVG text, to stand inside the report, whose style sheet names the colours.
//!
//! Lines, bars, columns and rings are all that the report needs; a drawing library would bring
//! fonts and a canvas for it. Every mark carries its value as a title, which browsers show under
//! the mouse.

use std::f64::consts::TAU;
use std::fmt::Write;

use super::html::escape;

/// Width of every chart, in its own units.
const WIDTH: f64 = 560.0;
/// Room for the labels of the vertical axis.
const LEFT: f64 = 54.0;
/// Colours that the style sheet has.
const COLOURS: usize = 8;

/// A line of a line chart.
#[derive(Clone, Debug)]
pub struct Series {
    /// What it shows.
    pub name: String,
    /// From left to right.
    pub points: Vec<(f64, f64)>,
    /// For what is expected rather than measured.
    pub is_dashed: bool,
}

/// A bar of a bar chart.
#[derive(Clone, Debug)]
pub struct Bar {
    /// What it shows.
    pub label: String,
    /// Its length; none says in words why there is no bar.
    pub value: Result<f64, &'static str>,
    /// Where theory expects its end.
    pub expected: Option<f64>,
}

/// How values are written.
pub type Show = fn(f64) -> String;

fn open(title: &str, height: f64) -> String {
    let title = escape(title);
    format!(
        "<svg viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" aria-label=\"{title}\">\
         <text class=\"title\" x=\"0\" y=\"16\">{title}</text>\n"
    )
}

fn text(svg: &mut String, x: f64, y: f64, anchor: &str, text: &str) {
    let text = escape(text);
    // Writing to a String does not fail.
    let _ = writeln!(svg, "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{text}</text>");
}

fn rule(svg: &mut String, class: &str, from: (f64, f64), to: (f64, f64)) {
    let ((x1, y1), (x2, y2)) = (from, to);
    let _ = writeln!(
        svg,
        "<line class=\"{class}\" x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\"/>"
    );
}

/// Round numbers that cut a range into a handful of steps, the last at or above its end.
fn ticks(from: f64, to: f64) -> Vec<f64> {
    // A single value gets a step of one around it.
    let to = if to - from < 1e-12 { from + 1.0 } else { to };
    let range = to - from;
    let power = 10_f64.powf((range / 5.0).log10().floor());
    let steps = [1.0, 2.0, 2.5, 5.0, 10.0].map(|step| step * power);
    let step = steps.into_iter().find(|step| range / step <= 6.0).unwrap_or(power * 10.0);
    let first = (from / step).floor();
    let count = ((to / step).ceil() - first) as usize;
    (0..=count).map(|number| (first + number as f64) * step).collect()
}

/// How an axis runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Axis {
    /// Equal steps are equal differences.
    Even,
    /// Equal steps double the value; values below one count as one.
    Doubling,
}

impl Axis {
    fn along(self, value: f64) -> f64 {
        match self {
            Self::Even => value,
            Self::Doubling => value.max(1.0).log2(),
        }
    }

    /// Marks around a range.
    fn marks(self, (low, high): (f64, f64)) -> Vec<f64> {
        match self {
            Self::Even => ticks(low, high),
            Self::Doubling => {
                let (from, to) = (self.along(low).floor(), self.along(high).ceil());
                let count = (to - from).max(1.0) as u32;
                (0..=count).map(|step| (from + f64::from(step)).exp2()).collect()
            }
        }
    }
}

/// Where lines are drawn.
struct Frame {
    x: (Axis, f64, f64),
    y: (Axis, f64, f64),
}

impl Frame {
    const HEIGHT: f64 = 300.0;
    const TOP: f64 = 52.0;
    const BOTTOM: f64 = Self::HEIGHT - 42.0;
    const RIGHT: f64 = WIDTH - 14.0;

    fn place(&self, (x, y): (f64, f64)) -> (f64, f64) {
        let part = |(axis, from, to): (Axis, f64, f64), value: f64| {
            (axis.along(value) - axis.along(from)) / (axis.along(to) - axis.along(from)).max(1e-12)
        };
        let across = LEFT + part(self.x, x) * (Self::RIGHT - LEFT);
        (across, Self::BOTTOM - part(self.y, y) * (Self::BOTTOM - Self::TOP))
    }
}

/// Lines in a common frame.
pub fn lines(title: &str, x_name: &str, series: &[Series], axes: [Axis; 2], show: Show) -> String {
    let mut svg = open(title, Frame::HEIGHT);
    let points = || series.iter().flat_map(|series| &series.points);
    let range = |of: fn(&(f64, f64)) -> f64| {
        points().map(of).fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| {
            (low.min(value), high.max(value))
        })
    };
    let (across, up) = (range(|point| point.0), range(|point| point.1));
    if points().next().is_none() {
        return svg + "</svg>\n";
    }
    let marks = axes[1].marks(up);
    let (low, high) = (marks[0], marks[marks.len() - 1]);
    let frame = Frame { x: (axes[0], across.0, across.1), y: (axes[1], low, high) };
    for mark in marks {
        let (_, y) = frame.place((across.0, mark));
        rule(&mut svg, "grid", (LEFT, y), (Frame::RIGHT, y));
        text(&mut svg, LEFT - 8.0, y + 4.0, "end", &show(mark));
    }
    let inside = |x: &f64| (across.0..=across.1).contains(x);
    for x in axes[0].marks(across).into_iter().filter(inside) {
        let at = frame.place((x, low)).0;
        text(&mut svg, at, Frame::BOTTOM + 17.0, "middle", &format!("{x}"));
    }
    let middle = (LEFT + Frame::RIGHT) / 2.0;
    text(&mut svg, middle, Frame::HEIGHT - 6.0, "middle", x_name);
    let mut legend = LEFT;
    for (number, series) in series.iter().enumerate() {
        line(&mut svg, &frame, series, number % COLOURS, show);
        let class = class_of(series, number % COLOURS);
        rule(&mut svg, &class, (legend, 34.0), (legend + 22.0, 34.0));
        text(&mut svg, legend + 28.0, 38.0, "start", &series.name);
        legend += 48.0 + series.name.len() as f64 * 6.6;
    }
    svg + "</svg>\n"
}

fn class_of(series: &Series, colour: usize) -> String {
    format!("line s{colour}{}", if series.is_dashed { " dashed" } else { "" })
}

fn line(svg: &mut String, frame: &Frame, series: &Series, colour: usize, show: Show) {
    let point = |point: &(f64, f64)| {
        let (x, y) = frame.place(*point);
        format!("{x:.1},{y:.1}")
    };
    let path: Vec<String> = series.points.iter().map(point).collect();
    let class = class_of(series, colour);
    let _ = writeln!(svg, "<polyline class=\"{class}\" points=\"{}\"/>", path.join(" "));
    // Dots on a line of many points would hide it.
    for point in series.points.iter().filter(|_| series.points.len() <= 16) {
        let (x, y) = frame.place(*point);
        let value = escape(&format!("{}, {}: {}", series.name, point.0, show(point.1)));
        let _ = writeln!(
            svg,
            "<circle class=\"dot f{colour}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\">\
             <title>{value}</title></circle>"
        );
    }
}

/// Bars from the left, one below the other, with a tick where theory expects their end.
pub fn bars(title: &str, bars: &[Bar], show: Show) -> String {
    let (step, left, right) = (26.0, 150.0, WIDTH - 76.0);
    let mut svg = open(title, 34.0 + step * bars.len() as f64);
    let values = bars.iter().flat_map(|bar| [bar.value.ok(), bar.expected]).flatten();
    let most = values.fold(0.0, f64::max).max(1e-12);
    for (number, bar) in bars.iter().enumerate() {
        let y = 30.0 + step * number as f64;
        text(&mut svg, left - 10.0, y + 14.0, "end", &bar.label);
        let value = match bar.value {
            Ok(value) => value,
            Err(reason) => {
                text(&mut svg, left, y + 14.0, "start", reason);
                continue;
            }
        };
        let length = (right - left) * value / most;
        let expected = bar.expected.map(|expected| left + (right - left) * expected / most);
        let said = bar.expected.map_or(String::new(), |e| format!(", expected {}", show(e)));
        let title = escape(&format!("{}: {}{said}", bar.label, show(value)));
        let _ = writeln!(
            svg,
            "<rect class=\"f0\" x=\"{left}\" y=\"{y:.1}\" width=\"{:.1}\" height=\"18\" rx=\"2\">\
             <title>{title}</title></rect>",
            length.max(1.0)
        );
        if let Some(x) = expected {
            rule(&mut svg, "expected", (x, y - 3.0), (x, y + 21.0));
        }
        let label_at = (left + length).max(expected.unwrap_or(0.0)) + 7.0;
        text(&mut svg, label_at, y + 14.0, "start", &show(value));
    }
    svg + "</svg>\n"
}

/// One column for each node, in the order given, for the second of two values; the first is a tick
/// across it. A line stands at one.
pub fn columns(title: &str, names: [&str; 2], nodes: &[(String, [f64; 2])]) -> String {
    let height = 270.0;
    let (top, bottom, right) = (52.0, height - 26.0, WIDTH - 12.0);
    let mut svg = open(title, height);
    let marks = ticks(0.0, nodes.iter().flat_map(|(_, values)| *values).fold(1.0, f64::max));
    let y_to = marks[marks.len() - 1];
    let place = |value: f64| bottom - value / y_to * (bottom - top);
    for mark in marks {
        rule(&mut svg, "grid", (LEFT, place(mark)), (right, place(mark)));
        text(&mut svg, LEFT - 8.0, place(mark) + 4.0, "end", &format!("{mark:.1}"));
    }
    let step = (right - LEFT) / nodes.len().max(1) as f64;
    for (number, (name, [first, second])) in nodes.iter().enumerate() {
        let x = LEFT + step * number as f64;
        let said = format!("{name}, {}: {first:.3}, {}: {second:.3}", names[0], names[1]);
        let _ = writeln!(
            svg,
            "<rect class=\"f1\" x=\"{:.2}\" y=\"{:.1}\" width=\"{:.2}\" height=\"{:.1}\">\
             <title>{}</title></rect>",
            x + step * 0.08,
            place(*second),
            step * 0.84,
            bottom - place(*second),
            escape(&said)
        );
        rule(&mut svg, "line s0", (x, place(*first)), (x + step, place(*first)));
    }
    rule(&mut svg, "expected", (LEFT, place(1.0)), (right, place(1.0)));
    rule(&mut svg, "line s0", (LEFT, 33.0), (LEFT + 14.0, 33.0));
    text(&mut svg, LEFT + 20.0, 38.0, "start", names[0]);
    let _ = writeln!(
        svg,
        "<rect class=\"f1\" x=\"{}\" y=\"27\" width=\"14\" height=\"12\"/>",
        LEFT + 120.0
    );
    text(&mut svg, LEFT + 140.0, 38.0, "start", names[1]);
    text(&mut svg, (LEFT + right) / 2.0, height - 6.0, "middle", "nodes");
    svg + "</svg>\n"
}

/// A ring of equal arcs.
#[derive(Clone, Debug)]
pub struct Circle {
    /// What stands below it.
    pub name: String,
    /// For each partition its owner's number, and whether that changed.
    pub arcs: Vec<(usize, bool)>,
}

/// Rings side by side, coloured by owner, with a second band around what changed.
pub fn rings(title: &str, circles: &[Circle], owners: &[String]) -> String {
    let (radius, height) = (104.0, 330.0);
    let mut svg = open(title, height);
    for (number, circle) in circles.iter().enumerate() {
        let centre = (WIDTH / circles.len() as f64 * (number as f64 + 0.5), 152.0);
        for (partition, (owner, is_changed)) in circle.arcs.iter().enumerate() {
            let part = |place: usize| place as f64 / circle.arcs.len() as f64;
            let (from, to) = (part(partition), part(partition + 1));
            let name = owners.get(*owner).map_or("", String::as_str);
            let said = escape(&format!("partition {partition}: {name}"));
            let class = format!("f{}", owner % COLOURS);
            arc(&mut svg, &class, centre, (radius - 42.0, radius), (from, to), &said);
            if *is_changed {
                arc(&mut svg, "changed", centre, (radius + 3.0, radius + 9.0), (from, to), &said);
            }
        }
        text(&mut svg, centre.0, centre.1 + 4.0, "middle", &circle.name);
    }
    let step = (WIDTH / owners.len().max(1) as f64).min(90.0);
    for (owner, name) in owners.iter().enumerate() {
        let x = step * owner as f64;
        let class = owner % COLOURS;
        let _ = writeln!(
            svg,
            "<rect class=\"f{class}\" x=\"{x:.1}\" y=\"300\" width=\"14\" height=\"12\"/>"
        );
        text(&mut svg, x + 20.0, 311.0, "start", name);
    }
    svg + "</svg>\n"
}

fn arc(
    svg: &mut String,
    class: &str,
    centre: (f64, f64),
    (inner, outer): (f64, f64),
    (from, to): (f64, f64),
    said: &str,
) {
    let at = |radius: f64, turn: f64| {
        let (sin, cos) = ((turn - 0.25) * TAU).sin_cos();
        format!("{:.2} {:.2}", centre.0 + radius * cos, centre.1 + radius * sin)
    };
    // An arc of a whole turn would begin where it ends and vanish.
    let to = to.min(from + 0.9999);
    let is_large = u8::from(to - from > 0.5);
    let _ = writeln!(
        svg,
        "<path class=\"arc {class}\" d=\"M{} A{outer} {outer} 0 {is_large} 1 {} L{} A{inner} {inner} 0 \
         {is_large} 0 {} Z\"><title>{said}</title></path>",
        at(outer, from),
        at(outer, to),
        at(inner, to),
        at(inner, from),
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_cover_the_range() {
        assert_eq!(
            ticks(0.0, 1.0),
            [0.0, 0.2, 0.4, 0.6, 0.8, 1.0].map(|tick: f64| (tick / 0.2).round() * 0.2)
        );
        for (from, to) in [(0.0, 7.3), (0.93, 1.27), (-3.0, 5.0), (2.0, 2.0), (0.0, 1e-9)] {
            let ticks = ticks(from, to);
            assert!(ticks[0] <= from && *ticks.last().expect("some") >= to, "{ticks:?}");
            assert!((2..=9).contains(&ticks.len()), "{ticks:?}");
        }
    }

    #[test]
    fn charts_of_nothing_and_of_hostile_names_are_whole_documents() {
        let name = "<script>&\"".to_owned();
        let series = |points| Series { name: name.clone(), points, is_dashed: false };
        let charts = [
            lines("t", "x", &[], [Axis::Even; 2], |y| y.to_string()),
            lines("t", "x", &[series(Vec::new())], [Axis::Doubling; 2], |y| y.to_string()),
            lines("t", "x", &[series(vec![(1.0, 2.0)])], [Axis::Doubling; 2], |y| y.to_string()),
            bars("t", &[Bar { label: name.clone(), value: Err("no"), expected: None }], |x| {
                x.to_string()
            }),
            columns("t", ["a", "b"], &[]),
            rings(
                "t",
                &[Circle { name: name.clone(), arcs: vec![(0, true)] }],
                std::slice::from_ref(&name),
            ),
        ];
        for chart in charts {
            assert!(chart.starts_with("<svg") && chart.trim_end().ends_with("</svg>"), "{chart}");
            assert!(
                !chart.contains("<script") && !chart.contains("NaN") && !chart.contains("inf"),
                "{chart}"
            );
        }
    }
}
