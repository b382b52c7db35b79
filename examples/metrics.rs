//! What a service shows to Prometheus: runs some work, and prints what a scrape would get.
//!
//!     cargo run --release --example metrics
//!
//! The runtime publishes through the `metrics` facade. A service installs a recorder before its first client, and
//! answers scrapes with what the recorder renders.

use metrics_exporter_prometheus::{Matcher, PrometheusBuilder};
use std::io::{Write, stdout};
use vkactor::{Bytes, Client, Compute, CubeCount, KernelArguments, WgslKernel};

type Failure = Box<dyn std::error::Error + Send + Sync>;

const SCALE: &str = "
    @group(0) @binding(0) var<storage, read> source: array<f32>;
    @group(0) @binding(1) var<storage, read_write> halved: array<f32>;
    @compute @workgroup_size(256)
    fn main(@builtin(global_invocation_id) id: vec3<u32>) {
        if (id.x < arrayLength(&halved)) { halved[id.x] = 0.5 * source[id.x]; }
    }";

/// Bounds of histograms, in seconds: a read that is polled for takes some 20 µs, a compilation some milliseconds.
const BUCKETS: [f64; 8] = [20e-6, 50e-6, 100e-6, 500e-6, 1e-3, 10e-3, 100e-3, 1.0];

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let seconds = Matcher::Suffix("_seconds".to_owned());
    let metrics = PrometheusBuilder::new().set_buckets_for_metric(seconds, &BUCKETS)?.install_recorder()?;

    let compute = Compute::new()?;
    work(&compute.default_client()?).await?;
    compute.shutdown().await?;

    Ok(stdout().write_all(metrics.render().as_bytes())?)
}

/// Four tasks, each with a stream of its own: launches that depend on each other, and a read.
async fn work(client: &Client) -> Result<(), Failure> {
    let kernel = WgslKernel::new("scale", SCALE);
    let tasks = (0..4).map(|_| {
        let (client, kernel) = (client.fork(), kernel.clone());
        tokio::spawn(async move {
            let mut buffers = [client.create(Bytes::from_elems(vec![1f32; 4096])), client.empty(4 * 4096)];
            for _ in 0..100 {
                let arguments = KernelArguments::new().with_buffer(&buffers[0]).with_buffer(&buffers[1]);
                client.launch(Box::new(kernel.clone()), CubeCount::new_1d(16), arguments);
                buffers.swap(0, 1);
            }
            let [result, _] = buffers;
            client.read_one_async(result).await
        })
    });
    for task in tasks.collect::<Vec<_>>() {
        task.await??;
    }
    Ok(())
}
