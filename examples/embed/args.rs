//! The command line.

use super::embedder::model_dir;
use std::path::PathBuf;

/// What the command line asks for.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Args {
    /// Where the lines are; the standard input if `None`.
    pub(crate) file: Option<String>,
    pub(crate) query: Option<String>,
    /// How many lines answer a query.
    pub(crate) top: usize,
    /// Lines in a batch, at most.
    pub(crate) batch: usize,
    /// Whether launches are recorded and replayed.
    pub(crate) graph: bool,
    /// The folder of the model.
    pub(crate) model: PathBuf,
}

impl Args {
    /// Reads the arguments after the program's name. `None` when they ask for help.
    ///
    /// # Errors
    /// What is wrong with them, for the user.
    pub(crate) fn parse(arguments: impl IntoIterator<Item = String>) -> Result<Option<Self>, String> {
        let mut args = Self { file: None, query: None, top: 5, batch: 64, graph: false, model: model_dir() };
        let mut files = Vec::new();
        let mut arguments = arguments.into_iter();
        while let Some(argument) = arguments.next() {
            let mut value = || arguments.next().ok_or_else(|| format!("{argument} needs a value"));
            match argument.as_str() {
                "--batch" => args.batch = count(&value()?)?,
                "--graph" => args.graph = true,
                "--help" | "-h" => return Ok(None),
                "--model" => args.model = value()?.into(),
                "--query" => args.query = Some(value()?),
                "--top" => args.top = count(&value()?)?,
                "--" => files.extend(arguments.by_ref()),
                flag if flag.starts_with('-') && flag != "-" => return Err(format!("no option {flag}\n{USAGE}")),
                _ => files.push(argument),
            }
        }
        if files.len() > 1 {
            return Err(format!("{} files, one is enough\n{USAGE}", files.len()));
        }
        args.file = files.pop().filter(|file| file != "-");
        Ok(Some(args))
    }
}

fn count(value: &str) -> Result<usize, String> {
    value.parse().ok().filter(|&count| count > 0).ok_or_else(|| format!("{value} is no count"))
}

/// How to call it.
pub(crate) const USAGE: &str = "\
usage: embed [--query TEXT] [--top N] [--batch N] [--graph] [--model DIR] [FILE|-]

Embeds each line of FILE (or of the standard input) on the GPU.
  --query TEXT  print the lines nearest to TEXT, with their cosine similarity
  --top N       how many lines (5)
  --batch N     lines in a batch, at most (64)
  --graph       record the launches of each shape of batch and replay them; tells what a batch gains
  --model DIR   the folder of all-MiniLM-L6-v2 (VKACTOR_MODEL, or target/model)
VKACTOR_DEVICE picks the device, by its index or a part of its name.
";
