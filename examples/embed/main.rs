//! Finds the lines of a text that mean the same as a question, on the GPU.
//!
//!     cargo run --release --example embed -- --query "how do cats spend the day" examples/embed/lines.txt
//!
//! Embeds every line by all-MiniLM-L6-v2, whose kernels (WGSL, in `kernels/`) run through `vkactor`. Without a query
//! it tells how fast that went, and then asks for questions if somebody is there to type them.
//! `scripts/fetch-model.sh` gets the model.

mod args;
mod embedder;
mod search;

use args::Args;
use embedder::{EmbedError, Embedder, Vectors};
use indicatif::{ProgressBar, ProgressStyle};
use std::fmt::Write as _;
use std::io::{IsTerminal, Write, stderr, stdin, stdout};
use std::process::ExitCode;
use std::time::{Duration, Instant};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use vkactor::{Client, Compute};

type Failure = Box<dyn std::error::Error + Send + Sync>;

#[tokio::main]
async fn main() -> ExitCode {
    let Err(error) = run().await else { return ExitCode::SUCCESS };
    // Whoever reads our output has seen enough (`embed … | head`): no failure.
    if error.downcast_ref::<std::io::Error>().is_some_and(|e| e.kind() == std::io::ErrorKind::BrokenPipe) {
        return ExitCode::SUCCESS;
    }
    // Where even this cannot be written, the exit code says it.
    let _ = writeln!(stderr(), "embed: {error}");
    ExitCode::FAILURE
}

async fn run() -> Result<(), Failure> {
    let Some(args) = Args::parse(std::env::args().skip(1))? else {
        return Ok(write!(stdout(), "{}", args::USAGE)?);
    };
    let lines = Line::all(&read_input(args.file.as_deref()).await?);
    if lines.is_empty() {
        return Err("the input has no text".into());
    }
    // Finding a driver and a device blocks for some tens of milliseconds.
    let (compute, client) = tokio::task::spawn_blocking(start).await??;
    let device = client.service_id().device;
    let device = compute.devices().iter().find(|found| found.id == device).map_or("a device", |found| &found.name);
    let plain = Embedder::load(client, &args.model).await?;
    let embedder = if args.graph { plain.recording() } else { plain.clone() };

    let begin = Instant::now();
    let vectors = embed_lines(&embedder, &lines, args.batch).await?;
    let mut summary = summary(device, &lines, &vectors, begin.elapsed());
    if args.graph {
        let [recorded, launched] = time_batch([&embedder, &plain], &lines, args.batch).await?;
        write!(summary, "\na batch takes {recorded:.2?} by graph and {launched:.2?} launch by launch")?;
    }
    if let Some(query) = &args.query {
        writeln!(stderr(), "{summary}")?;
        answer(&embedder, query, &lines, &vectors, args.top).await?;
    } else {
        writeln!(stdout(), "{summary}")?;
        if args.file.is_some() && stdin().is_terminal() {
            prompt(&embedder, &lines, &vectors, args.top).await?;
        }
    }
    drop((embedder, plain));
    Ok(compute.shutdown().await?)
}

fn start() -> Result<(Compute, Client), vkactor::ComputeError> {
    let compute = Compute::new()?;
    let client = compute.default_client()?;
    Ok((compute, client))
}

/// A line with text in it, and where it stands in the input, from 1.
struct Line {
    number: usize,
    text: String,
}

impl Line {
    fn all(input: &str) -> Vec<Self> {
        let lines = input.lines().enumerate().map(|(i, line)| Self { number: i + 1, text: line.trim().to_owned() });
        lines.filter(|line| !line.text.is_empty()).collect()
    }
}

/// The whole of a file, or of the standard input. What is not UTF-8 becomes U+FFFD.
async fn read_input(file: Option<&str>) -> Result<String, Failure> {
    let bytes = match file {
        Some(path) => tokio::fs::read(path).await.map_err(|error| format!("{path}: {error}"))?,
        None => {
            let mut bytes = Vec::new();
            tokio::io::stdin().read_to_end(&mut bytes).await?;
            bytes
        }
    };
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Embeds the lines; long inputs show how far it is, on a terminal.
async fn embed_lines(embedder: &Embedder, lines: &[Line], batch: usize) -> Result<Vectors, EmbedError> {
    let bar = if lines.len() < BAR_LINES_MIN { ProgressBar::hidden() } else { ProgressBar::new(lines.len() as u64) };
    let style = ProgressStyle::with_template("{bar:40} {human_pos}/{human_len} lines, {per_sec}, {eta} left");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    let texts = lines.iter().map(|line| line.text.clone()).collect();
    let vectors = embedder.embed(texts, batch, |count| bar.inc(count as u64)).await;
    bar.finish_and_clear();
    vectors
}

/// How long the first batch takes each embedder, tokens to vectors: medians of runs in turn, after one that is not
/// counted.
async fn time_batch(embedders: [&Embedder; 2], lines: &[Line], batch: usize) -> Result<[Duration; 2], EmbedError> {
    let texts: Vec<String> = lines.iter().take(batch).map(|line| line.text.clone()).collect();
    let mut times = [Vec::new(), Vec::new()];
    let begin = Instant::now();
    for run in 0..=TIMED_RUNS {
        for (embedder, times) in embedders.into_iter().zip(&mut times) {
            let begin = Instant::now();
            embedder.embed(texts.clone(), batch, |_| ()).await?;
            if run > 0 {
                times.push(begin.elapsed());
            }
        }
        if run > 0 && begin.elapsed() > TIMED_AT_MOST {
            break;
        }
    }
    Ok(times.map(|mut times| {
        times.sort();
        times[times.len() / 2]
    }))
}

fn summary(device: &str, lines: &[Line], vectors: &Vectors, time: Duration) -> String {
    let seconds = time.as_secs_f64();
    let (count, tokens) = (lines.len(), vectors.tokens);
    format!("{count} lines, {tokens} tokens in {seconds:.2} s: {:.0} lines/s on {device}", count as f64 / seconds)
}

/// Writes the lines nearest to `query`, best first, each with its cosine similarity and its number.
async fn answer(
    embedder: &Embedder,
    query: &str,
    lines: &[Line],
    vectors: &Vectors,
    top: usize,
) -> Result<(), Failure> {
    let query = embedder.embed(vec![query.to_owned()], 1, |_| ()).await?;
    let mut text = String::new();
    for (index, similarity) in search::nearest(vectors, query.row(0), top) {
        let Line { number, text: line } = &lines[index];
        writeln!(text, "{similarity:7.4} {number:6}  {line}")?;
    }
    Ok(stdout().write_all(text.as_bytes())?)
}

/// Answers what is typed, until the end of the input or an empty line.
async fn prompt(embedder: &Embedder, lines: &[Line], vectors: &Vectors, top: usize) -> Result<(), Failure> {
    let mut typed = BufReader::new(tokio::io::stdin()).lines();
    loop {
        write!(stdout(), "? ")?;
        stdout().flush()?;
        let Some(query) = typed.next_line().await?.filter(|query| !query.trim().is_empty()) else { return Ok(()) };
        answer(embedder, &query, lines, vectors, top).await?;
    }
}

/// Runs of a batch that is timed, and when to be content with fewer.
const TIMED_RUNS: usize = 50;
const TIMED_AT_MOST: Duration = Duration::from_secs(2);
/// Fewer lines are done before a bar could be read.
const BAR_LINES_MIN: usize = 1_000;
