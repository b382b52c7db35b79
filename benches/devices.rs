//! Bytes between devices, and reductions over several, beside the same by reading, computing on the host and writing.
//!
//! All are logical devices on the default one, so both ends share one bus and one memory: figures of real pairs are
//! better. `staged` is the transfer between devices that import no memory of each other.

#[expect(dead_code, reason = "nothing is launched here")]
mod common;
#[expect(dead_code, reason = "nothing is launched here")]
mod plain;

use std::time::Instant;

use common::{Bench, Case, Result, each, spin_on};
use plain::{COPY, Commands, Gpu, Place, Wait};
use vkactor::{Bytes, Client, DeviceId, ElemType, Handle, ReduceOperation, Vulkan, VulkanOptions};

fn main() -> Result<()> {
    let (mut bench, gpu) = Bench::open("devices")?;
    let cut = if bench.options.quick { 64 } else { 1 };
    for size in [4 << 20, TRANSFER_BYTES / cut] {
        transfer(&mut bench, &gpu, size)?;
    }
    for members in [2, 4] {
        reduce(&mut bench, members, REDUCE_BYTES / cut)?;
    }
    bench.finish()
}

/// The default device once more, under an id that nothing uses.
fn open(bench: &Bench, index: u16, host_import: bool) -> Result<Client> {
    let options = VulkanOptions { host_import, ..VulkanOptions::default() };
    let server = Vulkan::open_with(bench.client.service_id().device, &options)?;
    Ok(Client::try_init(DeviceId::new(0xbe9c, index), server)?)
}

/// `to_client` until the bytes are there.
fn transfer(bench: &mut Bench, gpu: &Gpu, size: u64) -> Result<()> {
    let [from, to] = [open(bench, 0, true)?, open(bench, 1, true)?];
    let [staged_from, staged_to] = [open(bench, 2, false)?, open(bench, 3, false)?];
    let host = pattern(size);
    let (source, staged_source) = (from.create_from_slice(&host), staged_from.create_from_slice(&host));
    let (device, down) = (gpu.filled(&host)?, gpu.buffer(size, Place::Readback)?);
    let (up, there) = (gpu.buffer(size, Place::Upload)?, gpu.buffer(size, Place::Device)?);
    let mut commands = gpu.commands()?;
    let send = |from: &Client, source: &Handle, to: &Client| {
        timed(|| {
            let there = from.clone().to_client(source.clone(), to, ElemType::U8);
            spin_on(to.sync())?;
            Ok(there)
        })
    };
    bench.run(Case {
        name: format!("to_client {}", show(size)),
        bytes: Some(size),
        samples: SAMPLES,
        vkactor: Box::new(|| send(&from, &source, &to)),
        plain: vec![
            (
                "read, then create",
                Box::new(|| {
                    timed(|| {
                        let there = to.create(Bytes::from(from.read_one(source.clone())?.to_vec()));
                        spin_on(to.sync())?;
                        Ok(there)
                    })
                }),
            ),
            ("staged", Box::new(|| send(&staged_from, &staged_source, &staged_to))),
            (
                "DMA down, then up, spin",
                Box::new(|| {
                    timed(|| {
                        dma(gpu, &mut commands, |recorder| recorder.read_back(COPY, device, down))?;
                        dma(gpu, &mut commands, |recorder| {
                            recorder.barrier(COPY, COPY);
                            recorder.copy(up, there);
                        })
                    })
                }),
            ),
        ],
    })?;
    let arrived = from.clone().to_client(source, &to, ElemType::U8);
    if to.read_one(arrived)?[..] == host[..] { Ok(()) } else { Err("the bytes came changed".into()) }
}

fn dma(gpu: &Gpu, commands: &mut Commands, record: impl FnOnce(&mut plain::Recorder<'_>)) -> Result<()> {
    commands.record(gpu, record)?;
    gpu.wait(gpu.submit(commands)?, Wait::Spin)
}

/// `all_reduce` in place, until all members have the result.
fn reduce(bench: &mut Bench, members: u16, size: u64) -> Result<()> {
    let clients: Vec<Client> = (0..members).map(|index| open(bench, 16 + index, true)).collect::<Result<_>>()?;
    if !bench.client.has_device_transport() {
        return Ok(());
    }
    let ids: Vec<DeviceId> = clients.iter().map(|client| client.service_id().device).collect();
    let words = size as usize / 4;
    let handles: Vec<Handle> = clients.iter().map(|c| c.create(Bytes::from_elems(vec![0f32; words]))).collect();
    bench.run(Case {
        name: format!("all_reduce {} over {members}", show(size)),
        bytes: Some(size),
        samples: SAMPLES,
        vkactor: Box::new(|| {
            timed(|| {
                for (client, handle) in clients.iter().zip(&handles) {
                    let mut client = client.clone();
                    client.all_reduce(handle.clone(), handle.clone(), ElemType::F32, ids.clone(), ReduceOperation::Sum);
                }
                clients.iter().try_for_each(|client| spin_on(client.sync()))?;
                Ok(())
            })
        }),
        plain: vec![(
            "read, add on the host, create",
            Box::new(|| {
                timed(|| {
                    let mut sum = vec![0f32; words];
                    for (client, handle) in clients.iter().zip(&handles) {
                        let bytes = client.read_one(handle.clone())?;
                        for (sum, word) in sum.iter_mut().zip(bytes.chunks_exact(4)) {
                            *sum += f32::from_ne_bytes([word[0], word[1], word[2], word[3]]);
                        }
                    }
                    let bytes = Bytes::from_elems(sum);
                    clients.iter().zip(&handles).for_each(|(client, handle)| client.write(handle, bytes.clone()));
                    clients.iter().try_for_each(|client| spin_on(client.sync()))?;
                    Ok(())
                })
            }),
        )],
    })
}

/// Nanoseconds that `work` takes; what it leaves is dropped off the clock.
fn timed<R>(work: impl FnOnce() -> Result<R>) -> Result<f64> {
    let started = Instant::now();
    let left = work()?;
    let took = started.elapsed();
    drop(left);
    Ok(each(took, 1))
}

/// Bytes that repeat late: a misplaced copy shows.
fn pattern(bytes: u64) -> Vec<u8> {
    (0..bytes).map(|index| (index.wrapping_mul(0x9E37_79B9) >> 13) as u8).collect()
}

fn show(bytes: u64) -> String {
    format!("{} MiB", bytes >> 20)
}

/// A transfer that hides every fixed cost.
const TRANSFER_BYTES: u64 = 256 << 20;
/// A large layer's gradients.
const REDUCE_BYTES: u64 = 64 << 20;
/// Samples a turn; large sizes end their turns by time.
const SAMPLES: usize = 20;
