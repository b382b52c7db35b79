//! The command line of a bench.

use std::path::PathBuf;

use super::Result;

/// What a bench is asked for.
#[derive(Debug)]
pub(crate) struct Options {
    /// Only see that it runs.
    pub(crate) quick: bool,
    /// Bind descriptor sets on the plain side also where buffers could be pushed.
    pub(crate) sets: bool,
    /// Turns of each side, after one to warm up.
    pub(crate) rounds: usize,
    /// Where the figures go as JSON.
    pub(crate) json: Option<PathBuf>,
    /// Only cases whose name holds one of these; all where there is none.
    names: Vec<String>,
}

impl Options {
    /// Reads arguments, the program's name left out.
    pub(super) fn parse(mut arguments: impl Iterator<Item = String>) -> Result<Self> {
        let mut rounds = None;
        let mut options = Self { quick: false, sets: false, rounds: 0, json: None, names: Vec::new() };
        while let Some(argument) = arguments.next() {
            match argument.as_str() {
                "--quick" => options.quick = true,
                "--sets" => options.sets = true,
                "--rounds" => rounds = Some(arguments.next().ok_or(USAGE)?.parse()?),
                "--json" => options.json = Some(arguments.next().ok_or(USAGE)?.into()),
                // Cargo says so to every bench.
                "--bench" => {}
                flag if flag.starts_with('-') => return Err(USAGE.into()),
                name => options.names.push(name.to_owned()),
            }
        }
        options.rounds = rounds.unwrap_or(if options.quick { 2 } else { 15 }).max(1);
        Ok(options)
    }

    /// Whether a case of this name is wanted.
    pub(super) fn takes(&self, name: &str) -> bool {
        self.names.is_empty() || self.names.iter().any(|part| name.contains(part))
    }
}

const USAGE: &str = "options: [--quick] [--rounds N] [--json PATH] [--sets] [PART OF A NAME]...";
