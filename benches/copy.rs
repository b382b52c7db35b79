//! Bytes to the device and back, by size, beside plain copies.
//!
//! Two floors for each: the DMA by itself, between pinned memory and a buffer that exist already, and the DMA with the
//! host's copy between pinned and ordinary memory.

#[expect(dead_code, reason = "nothing is launched here")]
mod common;
#[expect(dead_code, reason = "nothing is launched here")]
mod plain;

use std::time::{Duration, Instant};

use common::{Bench, Case, Result, each, spin_on};
use plain::{COPY, Commands, Gpu, Place, Region, Wait};
use vkactor::{AllocationProperty, Bytes};

fn main() -> Result<()> {
    let (mut bench, gpu) = Bench::open("copy")?;
    let most = bench.client.properties().memory.max_page_size.min(if bench.options.quick { 1 << 20 } else { u64::MAX });
    let sizes: Vec<u64> = SIZES.into_iter().filter(|&size| size <= most).collect();
    let largest = sizes.last().copied().ok_or("the device's largest page is smaller than the smallest size")?;
    let theirs = Theirs::new(&gpu, largest)?;
    for &size in &sizes {
        create(&mut bench, &theirs, size)?;
    }
    for &size in &sizes {
        read(&mut bench, &theirs, size)?;
    }
    bench.finish()
}

/// The plain side: a buffer of the device between two pinned ones.
struct Theirs<'a> {
    gpu: &'a Gpu,
    upload: Region,
    device: Region,
    readback: Region,
}

impl<'a> Theirs<'a> {
    fn new(gpu: &'a Gpu, bytes: u64) -> Result<Self> {
        let upload = gpu.buffer(bytes, Place::Upload)?;
        let device = gpu.filled(&pattern(bytes))?;
        let readback = gpu.buffer(bytes, Place::Readback)?;
        gpu.write(upload, &pattern(bytes));
        Ok(Self { gpu, upload, device, readback })
    }

    /// Copies the first `bytes` to the device, from record to done.
    fn up(&self, commands: &mut Commands, bytes: u64) -> Result<()> {
        commands.record(self.gpu, |recorder| {
            recorder.barrier(COPY, COPY);
            recorder.copy(self.upload.slice(0, bytes), self.device.slice(0, bytes));
        })?;
        self.gpu.wait(self.gpu.submit(commands)?, Wait::Spin)
    }

    /// Copies the first `bytes` to the host, from record to done.
    fn down(&self, commands: &mut Commands, bytes: u64) -> Result<()> {
        commands.record(self.gpu, |recorder| recorder.read_back(COPY, self.device, self.readback.slice(0, bytes)))?;
        self.gpu.wait(self.gpu.submit(commands)?, Wait::Spin)
    }
}

/// `create` until the bytes are on the device.
fn create(bench: &mut Bench, theirs: &Theirs<'_>, size: u64) -> Result<()> {
    let client = bench.client.clone();
    let host = pattern(size);
    let mut pinned = Bytes::from(host.clone());
    client.staging(std::iter::once(&mut pinned), false);
    if pinned.property() != AllocationProperty::Pinned {
        return Err(format!("staging left {size} bytes {:?}", pinned.property()).into());
    }
    let ordinary = Bytes::from(host.clone());
    let (mut dma, mut copied) = (theirs.gpu.commands()?, theirs.gpu.commands()?);
    let (mut alone, mut sliced) = (theirs.gpu.commands()?, theirs.gpu.commands()?);
    bench.run(Case {
        name: format!("create {}, pinned", show(size)),
        bytes: Some(size),
        samples: SAMPLES,
        vkactor: Box::new(|| {
            timed(|| {
                let handle = client.create(pinned.clone());
                spin_on(client.sync())?;
                Ok(handle)
            })
        }),
        plain: vec![("DMA, spin", Box::new(|| timed(|| theirs.up(&mut dma, size))))],
    })?;
    bench.run(Case {
        name: format!("create {}, ordinary memory", show(size)),
        bytes: Some(size),
        samples: SAMPLES,
        vkactor: Box::new(|| {
            timed(|| {
                let handle = client.create(ordinary.clone());
                spin_on(client.sync())?;
                Ok(handle)
            })
        }),
        plain: vec![
            (
                "memcpy, then DMA, spin",
                Box::new(|| {
                    timed(|| {
                        theirs.gpu.write(theirs.upload, &host);
                        theirs.up(&mut copied, size)
                    })
                }),
            ),
            ("DMA, spin", Box::new(|| timed(|| theirs.up(&mut alone, size)))),
        ],
    })?;
    bench.run(Case {
        name: format!("create {}, from a slice", show(size)),
        bytes: Some(size),
        samples: SAMPLES,
        vkactor: Box::new(|| {
            timed(|| {
                let handle = client.create_from_slice(&host);
                spin_on(client.sync())?;
                Ok(handle)
            })
        }),
        plain: vec![(
            "memcpy, then DMA, spin",
            Box::new(|| {
                timed(|| {
                    theirs.gpu.write(theirs.upload, &host);
                    theirs.up(&mut sliced, size)
                })
            }),
        )],
    })?;
    let handle = client.create(pinned.clone());
    same("vkactor's create", &client.read_one(handle)?, &host)
}

/// `read` until the host has the bytes.
fn read(bench: &mut Bench, theirs: &Theirs<'_>, size: u64) -> Result<()> {
    let client = bench.client.clone();
    let host = pattern(size);
    let handle = client.create_from_slice(&host);
    let (mut dma, mut copied) = (theirs.gpu.commands()?, theirs.gpu.commands()?);
    let mut into = vec![0; size as usize];
    bench.run(Case {
        name: format!("read {}", show(size)),
        bytes: Some(size),
        samples: SAMPLES,
        vkactor: Box::new(|| timed(|| Ok(client.read_one(handle.clone())?))),
        plain: vec![
            ("DMA, spin", Box::new(|| timed(|| theirs.down(&mut dma, size)))),
            (
                "DMA, then memcpy, spin",
                Box::new(|| {
                    timed(|| {
                        theirs.down(&mut copied, size)?;
                        theirs.gpu.read(theirs.readback, &mut into);
                        Ok(())
                    })
                }),
            ),
        ],
    })?;
    same("vkactor's read", &client.read_one(handle)?, &host)?;
    theirs.down(&mut theirs.gpu.commands()?, size)?;
    let mut found = vec![0; size as usize];
    theirs.gpu.read(theirs.readback, &mut found);
    same("plain Vulkan", &found, &host)
}

/// Nanoseconds that `work` takes; what it leaves is dropped off the clock.
fn timed<R>(work: impl FnOnce() -> Result<R>) -> Result<f64> {
    let started = Instant::now();
    let left = work()?;
    let took: Duration = started.elapsed();
    drop(left);
    Ok(each(took, 1))
}

fn same(side: &str, found: &[u8], expected: &[u8]) -> Result<()> {
    if found == expected { Ok(()) } else { Err(format!("{side}: {} bytes came back changed", expected.len()).into()) }
}

/// Bytes that repeat late: a misplaced copy shows.
fn pattern(bytes: u64) -> Vec<u8> {
    (0..bytes).map(|index| (index.wrapping_mul(0x9E37_79B9) >> 13) as u8).collect()
}

fn show(bytes: u64) -> String {
    if bytes < 1 << 20 { format!("{} KiB", bytes >> 10) } else { format!("{} MiB", bytes >> 20) }
}

/// From what fits a page of the host to what hides every fixed cost.
const SIZES: [u64; 6] = [4 << 10, 64 << 10, 1 << 20, 16 << 20, 64 << 20, 256 << 20];
/// Samples a turn; large sizes end their turns by time.
const SAMPLES: usize = 20;
