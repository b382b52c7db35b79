//! What the devices of this machine are, those too that cannot be used.
//!
//!     cargo run --release --example info -- [--measure] [--json]
//!
//! `--measure` also opens each device and measures what it does in a second; rates are kept in the user's cache
//! folder, so that a second call is quick.

use serde_json::{Value, json};
use std::fmt::Write as _;
use std::io::{Write as _, stderr, stdout};
use std::process::ExitCode;
use vkactor::{
    Client, Compute, DeviceInfo, DeviceInventory, ElemType, Features, HardwareProperties, MatrixShape, ThroughputKey,
    ThroughputMode,
};

type Failure = Box<dyn std::error::Error>;

const USAGE: &str = "\
usage: info [--measure] [--json]

Lists the devices, with their limits, features, queues and heaps.
  --measure  also what each does in a second
  --json     as JSON, sizes in bytes
";

fn main() -> ExitCode {
    let Err(error) = run() else { return ExitCode::SUCCESS };
    // Where even this cannot be written, the exit code says it.
    let _ = writeln!(stderr(), "info: {error}");
    ExitCode::FAILURE
}

fn run() -> Result<(), Failure> {
    let (mut measure, mut as_json) = (false, false);
    for argument in std::env::args().skip(1) {
        match argument.as_str() {
            "--measure" => measure = true,
            "--json" => as_json = true,
            "--help" | "-h" => return Ok(stdout().write_all(USAGE.as_bytes())?),
            other => return Err(format!("no option {other}\n{USAGE}").into()),
        }
    }
    let compute = Compute::new()?;
    let devices = compute.devices().iter().map(|device| Report::of(&compute, device, measure));
    let devices = devices.collect::<Result<Vec<Report>, Failure>>()?;
    let text = if as_json {
        let devices: Vec<Value> = devices.iter().map(Report::json).collect();
        let refused = compute.refused_devices().iter().map(|d| json!({ "name": d.name, "reason": d.reason }));
        format!("{:#}\n", json!({ "devices": devices, "refused": refused.collect::<Vec<Value>>() }))
    } else {
        let refused = compute.refused_devices().iter().map(|d| format!("{}: not usable, {}\n", d.name, d.reason));
        devices.iter().map(Report::table).chain(refused).collect::<Vec<String>>().join("\n")
    };
    Ok(stdout().write_all(text.as_bytes())?)
}

/// All that is told of a device.
struct Report {
    info: DeviceInfo,
    parts: DeviceInventory,
    client: Client,
    rates: Vec<Rate>,
}

/// What a device does in a second, or why that is not known.
struct Rate {
    name: String,
    unit: &'static str,
    per_second: Result<f64, String>,
}

impl Report {
    fn of(compute: &Compute, info: &DeviceInfo, measure: bool) -> Result<Self, Failure> {
        let client = compute.client(info.id)?;
        let rates = if measure { rates(&client) } else { Vec::new() };
        Ok(Self { info: info.clone(), parts: compute.inventory(info.id)?, client, rates })
    }

    fn json(&self) -> Value {
        let DeviceInfo { id, name, kind, driver, uuid, memory } = &self.info;
        let properties = self.client.properties();
        let heaps = self.parts.heaps.iter().map(|heap| {
            let (device, host) = (heap.device_local, heap.host_visible);
            json!({ "bytes": heap.bytes, "budget": heap.budget, "device_local": device, "host_visible": host })
        });
        let families = self.parts.queue_families.iter().map(|family| {
            json!({
                "count": family.count,
                "compute": family.compute,
                "graphics": family.graphics,
                "transfer": family.transfer,
                "timestamp_bits": family.timestamp_bits,
            })
        });
        let rates = self.rates.iter().map(|rate| {
            let (value, error) = (rate.per_second.as_ref().ok(), rate.per_second.as_ref().err());
            json!({ "name": rate.name, "unit": rate.unit, "per_second": value, "error": error })
        });
        json!({
            "id": { "type": id.type_id, "index": id.index_id },
            "name": name,
            "kind": format!("{kind:?}"),
            "driver": driver,
            "uuid": hex(uuid),
            "memory": memory,
            "timing_method": format!("{:?}", properties.timing_method),
            "vulkan": [self.parts.api.0, self.parts.api.1],
            "heaps": heaps.collect::<Vec<Value>>(),
            "queue_families": families.collect::<Vec<Value>>(),
            "limits": limits_json(&properties.hardware, properties.memory.max_page_size, properties.memory.alignment),
            "features": features_json(&properties.features),
            "throughput": rates.collect::<Vec<Value>>(),
        })
    }

    fn table(&self) -> String {
        let DeviceInfo { id, name, kind, driver, uuid, .. } = &self.info;
        let properties = self.client.properties();
        let mut table = Table::default();
        table.title(&format!("{}:{}  {name}", id.type_id, id.index_id));
        table.row("kind", &format!("{kind:?}"));
        table.row("driver", &format!("{driver}, Vulkan {}.{}", self.parts.api.0, self.parts.api.1));
        table.row("uuid", &hex(uuid));
        table.row("windows timed by", &format!("{:?}", properties.timing_method));
        for (index, heap) in self.parts.heaps.iter().enumerate() {
            let mut text = bytes(heap.bytes);
            if let Some(budget) = heap.budget {
                let _infallible = write!(text, ", {} for this process now", bytes(budget));
            }
            let traits = [("device's own", heap.device_local), ("host-visible", heap.host_visible)];
            table.row(&format!("heap {index}"), &with(text, &traits));
        }
        for (index, family) in self.parts.queue_families.iter().enumerate() {
            let text = format!("queues: {}, timestamp bits: {}", family.count, family.timestamp_bits);
            let traits = [("compute", family.compute), ("graphics", family.graphics), ("transfer", family.transfer)];
            table.row(&format!("queue family {index}"), &with(text, &traits));
        }
        limits_rows(&mut table, &properties.hardware);
        table.row("largest buffer", &bytes(properties.memory.max_page_size));
        table.row("binding alignment", &bytes(properties.memory.alignment));
        features_rows(&mut table, &properties.features);
        for rate in &self.rates {
            let text = match &rate.per_second {
                Ok(value) => format!("{}{}", prefixed(*value), rate.unit),
                Err(reason) => reason.clone(),
            };
            table.row(&rate.name, &text);
        }
        table.0
    }
}

// ---------------------------------------------------------------------------------- limits and features

fn limits_json(limits: &HardwareProperties, max_buffer: u64, alignment: u64) -> Value {
    json!({
        "buffer_bytes_max": max_buffer,
        "binding_alignment": alignment,
        "bindings_max": limits.max_bindings,
        "parameter_bytes_max": limits.max_info_size,
        "shared_memory_bytes_max": limits.max_shared_memory_size,
        "cube_count_max": limits.max_cube_count,
        "cube_dim_max": limits.max_cube_dim,
        "units_per_cube_max": limits.max_units_per_cube,
        "plane_size": [limits.plane_size_min, limits.plane_size_max],
        "load_width_bits": limits.load_width,
        "queues_driven": limits.queues,
    })
}

fn limits_rows(table: &mut Table, limits: &HardwareProperties) {
    let three = |(x, y, z): (u32, u32, u32)| format!("{x} × {y} × {z}");
    table.row("workgroups", &three(limits.max_cube_count));
    table.row("workgroup", &format!("{}, {} in all", three(limits.max_cube_dim), limits.max_units_per_cube));
    table.row("workgroup memory", &bytes(limits.max_shared_memory_size as u64));
    table.row("subgroup", &format!("{} to {}", limits.plane_size_min, limits.plane_size_max));
    table.row("buffers of a launch", &limits.max_bindings.to_string());
    table.row("parameters", &bytes(limits.max_info_size as u64));
    table.row("widest load", &format!("{} bits", limits.load_width));
}

fn features_json(features: &Features) -> Value {
    let matrix = features.matrix.iter().map(|shape| {
        let MatrixShape { m, n, k, a, b, c } = shape;
        json!({ "m": m, "n": n, "k": k, "a": format!("{a:?}"), "b": format!("{b:?}"), "c": format!("{c:?}") })
    });
    json!({
        "types": features.types.iter().map(|elem| format!("{elem:?}")).collect::<Vec<String>>(),
        "atomic_float": features.atomic_float,
        "subgroups": features.subgroups,
        "device_transport": features.device_transport,
        "host_import": features.host_import,
        "graph": format!("{:?}", features.graph),
        "matrix": matrix.collect::<Vec<Value>>(),
    })
}

fn features_rows(table: &mut Table, features: &Features) {
    let types: Vec<String> = features.types.iter().map(|elem| format!("{elem:?}")).collect();
    table.row("types", &types.join(" "));
    let traits = [
        ("f32 atomics", features.atomic_float),
        ("subgroups", features.subgroups),
        ("device transport", features.device_transport),
        ("host import", features.host_import),
    ];
    let there: Vec<&str> = traits.iter().filter(|(_, there)| *there).map(|(name, _)| *name).collect();
    table.row("features", &if there.is_empty() { "none of the optional".to_owned() } else { there.join(", ") });
    table.row("graphs", &format!("{:?}", features.graph));
    for MatrixShape { m, n, k, a, b, c } in &features.matrix {
        table.row("matrix unit", &format!("{m} × {n} × {k}  {a:?} × {b:?} → {c:?}"));
    }
}

// ---------------------------------------------------------------------------------- rates

fn rates(client: &Client) -> Vec<Rate> {
    use ThroughputMode::{Compute, DeviceToHost, HostToDevice, Launch, Matrix, MemoryCopy, MemoryRead, MemoryWrite};
    let mut keys = vec![
        ("read memory".to_owned(), "B/s", MemoryRead, ElemType::F32),
        ("write memory".to_owned(), "B/s", MemoryWrite, ElemType::F32),
        ("copy memory".to_owned(), "B/s", MemoryCopy, ElemType::F32),
        ("host to device".to_owned(), "B/s", HostToDevice, ElemType::F32),
        ("device to host".to_owned(), "B/s", DeviceToHost, ElemType::F32),
        ("launches".to_owned(), "/s", Launch, ElemType::F32),
    ];
    let numbers = client.features().types.iter().filter(|elem| **elem != ElemType::Bool);
    keys.extend(numbers.map(|&elem| (format!("arithmetic {elem:?}"), "op/s", Compute, elem)));
    // Shapes that differ in their sums only have one rate.
    let mut shapes: Vec<_> = client.features().matrix.iter().map(|s| (s.m, s.n, s.k, s.a)).collect();
    shapes.sort_unstable();
    shapes.dedup();
    keys.extend(
        shapes
            .into_iter()
            .map(|(m, n, k, elem)| (format!("matrix {m} × {n} × {k} {elem:?}"), "op/s", Matrix { m, n, k }, elem)),
    );
    let measured = keys.into_iter().map(|(name, unit, mode, dtype)| {
        let value = client.throughput(ThroughputKey { mode, dtype });
        Rate { name, unit, per_second: value.map(|v| v.per_second()).map_err(|error| error.to_string()) }
    });
    measured.collect()
}

// ---------------------------------------------------------------------------------- text

/// Rows of a name and a value.
#[derive(Default)]
struct Table(String);

impl Table {
    fn title(&mut self, text: &str) {
        self.0.push_str(text);
        self.0.push('\n');
    }

    fn row(&mut self, name: &str, value: &str) {
        let _infallible = writeln!(self.0, "  {name:<24}{value}");
    }
}

/// A text and the names of what holds.
fn with(mut text: String, traits: &[(&str, bool)]) -> String {
    for (name, _) in traits.iter().filter(|(_, holds)| *holds) {
        text.push_str(", ");
        text.push_str(name);
    }
    text
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn bytes(count: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let power = UNITS.iter().enumerate().rev().find(|(power, _)| count >= 1 << (10 * power));
    let (power, unit) = power.unwrap_or((0, &"B"));
    let scaled = count as f64 / (1u64 << (10 * power)) as f64;
    if scaled.fract() == 0.0 { format!("{scaled} {unit}") } else { format!("{scaled:.1} {unit}") }
}

fn prefixed(value: f64) -> String {
    const PREFIXES: [(f64, &str); 4] = [(1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")];
    let (unit, prefix) = PREFIXES.into_iter().find(|(unit, _)| value >= *unit).unwrap_or((1.0, ""));
    format!("{:.3} {prefix}", value / unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reports() -> Vec<Report> {
        let compute = Compute::new().expect("a Vulkan device");
        let devices = compute.devices().iter().map(|device| Report::of(&compute, device, false));
        devices.collect::<Result<_, _>>().expect("every device opens")
    }

    #[test]
    fn json_has_what_the_device_says_of_itself() {
        for report in reports() {
            let text = format!("{:#}", report.json());
            let device: Value = serde_json::from_str(&text).unwrap();
            assert_eq!(device["name"], report.info.name);
            assert_eq!(device["id"]["index"], report.info.id.index_id);
            assert_eq!(device["uuid"].as_str().map(str::len), Some(32));
            assert!(device["vulkan"][1].as_u64() >= Some(2), "{text}");
            let heaps = device["heaps"].as_array().unwrap();
            assert!(
                heaps.iter().any(|heap| heap["device_local"] == true && heap["bytes"].as_u64() > Some(0)),
                "{text}"
            );
            assert!(device["queue_families"].as_array().unwrap().iter().any(|family| family["compute"] == true));
            for limit in ["buffer_bytes_max", "binding_alignment", "bindings_max", "parameter_bytes_max"] {
                assert!(device["limits"][limit].as_u64() > Some(0), "{limit} in {text}");
            }
            let types = device["features"]["types"].as_array().unwrap();
            assert!(types.iter().any(|elem| elem == "F32"), "{text}");
            assert!(device["features"]["matrix"].is_array() && device["throughput"].is_array(), "{text}");
        }
    }

    #[test]
    fn rates_and_what_keeps_them_from_being_known_are_both_told() {
        let mut report = reports().remove(0);
        let rate = |name: &str, per_second| Rate { name: name.to_owned(), unit: "B/s", per_second };
        report.rates = vec![rate("fast", Ok(3.8e12)), rate("none", Err("unsupported".to_owned()))];
        let json = report.json();
        assert_eq!(json["throughput"][0]["per_second"], 3.8e12);
        assert_eq!(json["throughput"][1]["error"], "unsupported");
        let table = report.table();
        let row = |name: &str| table.lines().find(|line| line.trim_start().starts_with(name)).unwrap().to_owned();
        assert!(row("fast").ends_with(" 3.800 TB/s") && row("none").ends_with(" unsupported"), "{table}");
    }

    #[test]
    fn numbers_read_well() {
        assert_eq!([0, 1536, 2 << 30].map(bytes), ["0 B", "1.5 KiB", "2 GiB"]);
        assert_eq!([7.0, 5e4, 3.8e12].map(prefixed), ["7.000 ", "50.000 k", "3.800 T"]);
    }
}
