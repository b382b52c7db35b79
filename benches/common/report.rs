//! The table of ratios, on the terminal and as JSON.

use std::fs::File;
use std::io::{BufWriter, Write, stdout};
use std::path::Path;

use serde::Serialize;
use vkactor::DeviceInfo;

use super::{Options, Result};

/// All figures of one run.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    bench: &'static str,
    device: String,
    driver: String,
    quick: bool,
    rows: Vec<Row>,
}

/// One case beside one of its floors.
#[derive(Debug, Serialize)]
pub(super) struct Row {
    name: String,
    floor: String,
    /// Bytes an operation.
    bytes: Option<u64>,
    vkactor_ns: Spread,
    plain_ns: Spread,
    /// Time of vkactor over time of plain: above 1, the runtime costs that much more.
    ratio: f64,
}

/// Quartiles of what was sampled.
#[derive(Debug, Clone, Copy, Serialize)]
pub(super) struct Spread {
    lower: f64,
    median: f64,
    upper: f64,
    samples: usize,
}

impl Spread {
    /// # Panics
    /// There are no samples.
    pub(super) fn of(mut samples: Vec<f64>) -> Self {
        assert!(!samples.is_empty(), "every turn takes a sample");
        samples.sort_by(f64::total_cmp);
        let at = |quarter: usize| samples[(samples.len() - 1) * quarter / 4];
        Self { lower: at(1), median: at(2), upper: at(3), samples: samples.len() }
    }

    fn show(&self, bytes: Option<u64>) -> String {
        // Half the way between the quartiles, in per cent.
        let spread = (self.upper - self.lower) / self.median * 50.0;
        match bytes {
            // Bytes a nanosecond are GB/s. For few bytes the fixed cost is what counts, so time is shown.
            Some(bytes) if bytes >= 1 << 20 => format!("{:.2} GB/s ±{spread:.0}%", bytes as f64 / self.median),
            _ if self.median < 1e3 => format!("{:.0} ns ±{spread:.0}%", self.median),
            _ => format!("{:.2} µs ±{spread:.0}%", self.median / 1e3),
        }
    }
}

impl Row {
    pub(super) fn new(name: &str, floor: &str, bytes: Option<u64>, vkactor: Spread, plain: Spread) -> Self {
        let ratio = vkactor.median / plain.median;
        Self { name: name.to_owned(), floor: floor.to_owned(), bytes, vkactor_ns: vkactor, plain_ns: plain, ratio }
    }

    fn show(&self) -> String {
        let (vkactor, plain) = (self.vkactor_ns.show(self.bytes), self.plain_ns.show(self.bytes));
        format!("{:<46} {vkactor:>18} {plain:>18} {:>8.2}  {}", self.name, self.ratio, self.floor)
    }
}

impl Report {
    pub(super) fn new(bench: &'static str, info: &DeviceInfo, options: &Options) -> Self {
        let (device, driver) = (info.name.clone(), info.driver.clone());
        Self { bench, device, driver, quick: options.quick, rows: Vec::new() }
    }

    /// Adds a row and prints it: a run may take minutes.
    pub(super) fn add(&mut self, row: Row) -> Result<()> {
        let mut out = stdout().lock();
        if self.rows.is_empty() {
            let quick = if self.quick { ", quick: the figures mean nothing" } else { "" };
            writeln!(out, "{} on {} ({}){quick}", self.bench, self.device, self.driver)?;
            writeln!(out, "{:<46} {:>18} {:>18} {:>8}  floor", "", "vkactor", "plain", "ratio")?;
        }
        writeln!(out, "{}", row.show())?;
        self.rows.push(row);
        Ok(())
    }

    pub(super) fn finish(&self, json: Option<&Path>) -> Result<()> {
        let Some(path) = json else { return Ok(()) };
        let mut file = BufWriter::new(File::create(path)?);
        serde_json::to_writer_pretty(&mut file, self)?;
        writeln!(file)?;
        file.flush()?;
        Ok(())
    }
}
