//! What was measured, for people or as JSON.

use std::fmt::Write;

use forebay::units::Human;

use crate::run::Outcome;

impl Outcome {
    /// Physical over live; none where nothing was ever live.
    fn ratio(&self) -> Option<f64> {
        (self.peak_live > 0).then(|| self.peak_physical as f64 / self.peak_live as f64)
    }
}

/// One line. Its keys are what other programs read: none is renamed or left out.
pub fn json(outcome: &Outcome) -> String {
    let number = |value: Option<f64>, digits: usize| value.map_or("null".into(), |value| format!("{value:.digits$}"));
    let Outcome { events, streams, peak_live, peak_physical, steals, growths, waits, .. } = outcome;
    format!(
        "{{\"trace\": {}, \"driver\": \"{}\", \"events\": {events}, \"streams\": {streams}, \
         \"peak_live_bytes\": {peak_live}, \"peak_physical_bytes\": {peak_physical}, \"ratio\": {}, \"driver_ms\": {}, \
         \"ns_per_op\": {:.1}, \"steals\": {steals}, \"growths\": {growths}, \"waits\": {waits}}}",
        serde_json::Value::from(outcome.trace.as_str()),
        outcome.driver,
        number(outcome.ratio(), 6),
        number(outcome.driver_ms, 3),
        outcome.ns_per_op,
    )
}

const HEADS: [&str; 11] = [
    "trace",
    "events",
    "streams",
    "peak live",
    "peak physical",
    "ratio",
    "driver ms",
    "ns/op",
    "steals",
    "growths",
    "waits",
];

/// Names left, numbers right, one line a trace.
pub fn text(outcomes: &[Outcome]) -> String {
    let dash = || "-".to_owned();
    let mut rows = vec![HEADS.map(str::to_owned)];
    rows.extend(outcomes.iter().map(|outcome| {
        [
            outcome.trace.clone(),
            outcome.events.to_string(),
            outcome.streams.to_string(),
            Human(outcome.peak_live).to_string(),
            Human(outcome.peak_physical).to_string(),
            outcome.ratio().map_or_else(dash, |ratio| format!("{ratio:.4}")),
            outcome.driver_ms.map_or_else(dash, |ms| format!("{ms:.1}")),
            format!("{:.0}", outcome.ns_per_op),
            outcome.steals.to_string(),
            outcome.growths.to_string(),
            outcome.waits.to_string(),
        ]
    }));
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: [usize; HEADS.len()] = std::array::from_fn(width);
    let mut text = String::new();
    for row in &rows {
        let (first, rest) = (format!("{:<1$}", row[0], widths[0]), row.iter().zip(widths).skip(1));
        let line = rest.fold(first, |line, (cell, width)| format!("{line}  {cell:>width$}"));
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{line}");
    }
    let _ = writeln!(text, "\n{}", note(outcomes));
    text
}

fn note(outcomes: &[Outcome]) -> String {
    let driver = outcomes.first().map_or("none", |outcome| outcome.driver);
    let priced = outcomes.iter().any(|outcome| outcome.driver_ms.is_some());
    let cost = if priced {
        "driver ms is what its calls would have cost on an H200"
    } else {
        "driver ms is not measured on this driver"
    };
    format!("driver {driver}; {cost}, ns/op is the time of the calls here; no two live blocks overlapped")
}
