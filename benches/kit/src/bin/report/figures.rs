//! Samples by name, and tables of them.

use std::collections::BTreeMap;
use std::fmt;

use anyhow::{Context as _, Result};

/// All samples.
#[derive(Default)]
pub(crate) struct Figures(BTreeMap<Vec<String>, Vec<f64>>);

impl Figures {
    pub(crate) fn add(&mut self, name: &[&str], sample: f64) {
        self.0.entry(owned(name)).or_default().push(sample);
    }

    fn sorted(&self, name: &[&str]) -> Result<Vec<f64>> {
        let mut samples =
            self.0.get(&owned(name)).with_context(|| format!("no samples of {name:?}"))?.clone();
        samples.sort_by(f64::total_cmp);
        Ok(samples)
    }

    /// The middle sample, or the mean of the two in the middle.
    pub(crate) fn median(&self, name: &[&str]) -> Result<f64> {
        let samples = self.sorted(name)?;
        let middle = samples.len() / 2;
        Ok(if samples.len() % 2 == 1 {
            samples[middle]
        } else {
            (samples[middle - 1] + samples[middle]) / 2.0
        })
    }

    /// The median, with the least and the most.
    pub(crate) fn spread(&self, name: &[&str], show: impl Fn(f64) -> String) -> Result<String> {
        let samples = self.sorted(name)?;
        let (least, most) = (samples[0], samples[samples.len() - 1]);
        Ok(format!("{} ({} – {})", show(self.median(name)?), show(least), show(most)))
    }

    /// What there is under a name, largest first.
    pub(crate) fn below(&self, name: &[&str]) -> Vec<(&str, f64)> {
        let below =
            self.0.iter().filter(|(full, _)| full.len() == name.len() + 1 && full.starts_with(&owned(name)));
        let mut below: Vec<_> =
            below.filter_map(|(full, samples)| Some((full.last()?.as_str(), *samples.first()?))).collect();
        below.sort_by(|one, other| other.1.total_cmp(&one.1));
        below
    }
}

fn owned(name: &[&str]) -> Vec<String> {
    name.iter().map(|&word| word.to_owned()).collect()
}

/// A table in Markdown.
pub(crate) struct Table {
    head: Vec<String>,
    rows: Vec<Vec<String>>,
}

impl Table {
    pub(crate) fn new(head: &[&str]) -> Self {
        Self { head: owned(head), rows: Vec::new() }
    }

    pub(crate) fn row<const N: usize>(&mut self, name: &str, cells: [Result<String>; N]) -> Result<()> {
        let mut row = vec![name.to_owned()];
        for cell in cells {
            row.push(cell?);
        }
        self.rows.push(row);
        Ok(())
    }
}

impl fmt::Display for Table {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "| {} |\n|---{}|", self.head.join(" | "), "|--:".repeat(self.head.len() - 1))?;
        self.rows.iter().try_for_each(|row| write!(out, "\n| {} |", row.join(" | ")))
    }
}

/// A number that should not be exceeded.
pub(crate) struct Goal {
    name: String,
    most: f64,
    measured: f64,
    unit: &'static str,
}

impl Goal {
    pub(crate) fn at_most(name: &str, most: f64, measured: f64, unit: &'static str) -> Self {
        Self { name: name.to_owned(), most, measured, unit }
    }

    pub(crate) fn table(goals: &[Self]) -> Result<Table> {
        let mut table = Table::new(&["goal", "at most", "measured", ""]);
        for Self { name, most, measured, unit } in goals {
            // As it is shown, so that nothing is missed by what nobody sees.
            let is_met = (measured * 100.0).round() / 100.0 <= *most;
            let cell = |value: String| Ok(format!("{value} {unit}").trim().to_owned());
            let word = if is_met { "met" } else { "**missed**" };
            table.row(name, [cell(most.to_string()), cell(format!("{measured:.2}")), Ok(word.to_owned())])?;
        }
        Ok(table)
    }
}

pub(crate) fn micros(value: f64) -> String {
    format!("{value:.0}")
}

pub(crate) fn times(value: f64) -> String {
    format!("{value:.2} ×")
}

/// A whole number, with its thousands apart.
pub(crate) fn bytes(value: f64) -> String {
    let digits = format!("{value:.0}");
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(' ');
        }
        text.push(digit);
    }
    text
}
