//! The kernels, each with the launch that fits it.

use super::sentences::Sentences;
use super::weights::Config;
use vkactor::{Client, CubeCount, Handle, KernelArguments, WgslKernel};

/// Every kernel of the model, made once: a launch clones one, which is one atomic increment.
pub(crate) struct Kernels {
    width: u32,
    heads: u32,
    lookup: WgslKernel,
    norm: WgslKernel,
    attention: WgslKernel,
    pool: WgslKernel,
    linear: Tiles,
    linear_gelu: Tiles,
}

/// One matrix product for many rows, and one for few.
struct Tiles {
    tall: WgslKernel,
    flat: WgslKernel,
}

/// `y = x W + b`: `weight` is [inner / 4, columns, 4], so that each vector has 4 neighbours along `inner`.
pub(crate) struct Linear {
    pub(crate) weight: Handle,
    pub(crate) bias: Handle,
    pub(crate) columns: u32,
    pub(crate) inner: u32,
}

/// What a layer norm multiplies by and adds.
pub(crate) struct Norm {
    pub(crate) gain: Handle,
    pub(crate) offset: Handle,
}

/// The tables that tokens are looked up in.
pub(crate) struct Tables {
    pub(crate) words: Handle,
    pub(crate) positions: Handle,
    pub(crate) kinds: Handle,
    pub(crate) norm: Norm,
}

impl Kernels {
    pub(crate) fn new(config: &Config) -> Self {
        let width = config.hidden_size;
        let by_row = |name: &'static str, code: &'static str, epsilon: f64| {
            WgslKernel::new(name, code).constant("width", width as f64).constant("epsilon", epsilon)
        };
        let linear = |gelu: bool, row_lanes: u32| {
            WgslKernel::new(if gelu { "linear_gelu" } else { "linear" }, LINEAR)
                .constant("gelu", f64::from(u8::from(gelu)))
                .constant("row_lanes", f64::from(row_lanes))
        };
        let tiles = |gelu| Tiles { tall: linear(gelu, TALL), flat: linear(gelu, FLAT) };
        Self {
            width: width as u32,
            heads: config.num_attention_heads as u32,
            lookup: by_row("lookup", LOOKUP, config.layer_norm_eps),
            norm: by_row("norm", NORM, config.layer_norm_eps),
            attention: WgslKernel::new("attention", ATTENTION).constant("width", width as f64),
            pool: by_row("pool", POOL, SHORTEST),
            linear: tiles(false),
            linear_gelu: tiles(true),
        }
    }

    /// Rows of the first layer: [rows, width].
    pub(crate) fn lookup(&self, client: &Client, tables: &Tables, sentences: &Sentences) -> Handle {
        let out = self.activation(client, sentences.rows(), self.width);
        let arguments = KernelArguments::new()
            .with_buffer(&sentences.ids)
            .with_buffer(&tables.words)
            .with_buffer(&tables.positions)
            .with_buffer(&tables.kinds)
            .with_buffer(&tables.norm.gain)
            .with_buffer(&tables.norm.offset)
            .with_buffer(&out)
            .with_info(sentences.padded);
        client.launch(Box::new(self.lookup.clone()), CubeCount::new_1d(sentences.rows()), arguments);
        out
    }

    /// Layer norm of `x + residual`: [rows, width].
    pub(crate) fn norm(&self, client: &Client, norm: &Norm, x: &Handle, residual: &Handle, rows: u32) -> Handle {
        let out = self.activation(client, rows, self.width);
        let arguments = KernelArguments::new()
            .with_buffer(x)
            .with_buffer(residual)
            .with_buffer(&norm.gain)
            .with_buffer(&norm.offset)
            .with_buffer(&out);
        client.launch(Box::new(self.norm.clone()), CubeCount::new_1d(rows), arguments);
        out
    }

    /// `x W + b`: [rows, columns].
    pub(crate) fn linear(&self, client: &Client, linear: &Linear, x: &Handle, rows: u32) -> Handle {
        self.product(client, &self.linear, linear, x, rows)
    }

    /// GELU of `x W + b`: [rows, columns].
    pub(crate) fn linear_gelu(&self, client: &Client, linear: &Linear, x: &Handle, rows: u32) -> Handle {
        self.product(client, &self.linear_gelu, linear, x, rows)
    }

    /// What each token gathers from its sentence, all heads side by side: [rows, width]. `qkv` is [rows, 3 width].
    pub(crate) fn attention(&self, client: &Client, qkv: &Handle, sentences: &Sentences) -> Handle {
        let out = self.activation(client, sentences.rows(), self.width);
        let arguments = KernelArguments::new()
            .with_buffer(qkv)
            .with_buffer(&sentences.lengths)
            .with_buffer(&out)
            .with_info(sentences.padded);
        let count = CubeCount::new_3d(sentences.padded.div_ceil(QUERIES), self.heads, sentences.count);
        client.launch(Box::new(self.attention.clone()), count, arguments);
        out
    }

    /// The unit vector of each sentence: [count, width].
    pub(crate) fn pool(&self, client: &Client, x: &Handle, sentences: &Sentences) -> Handle {
        let out = self.activation(client, sentences.count, self.width);
        let arguments = KernelArguments::new()
            .with_buffer(x)
            .with_buffer(&sentences.lengths)
            .with_buffer(&out)
            .with_info(sentences.padded);
        client.launch(Box::new(self.pool.clone()), CubeCount::new_1d(sentences.count), arguments);
        out
    }

    fn product(&self, client: &Client, tiles: &Tiles, linear: &Linear, x: &Handle, rows: u32) -> Handle {
        let (kernel, row_lanes) = if rows < TALL_ROWS_MIN { (&tiles.flat, FLAT) } else { (&tiles.tall, TALL) };
        let out = self.activation(client, rows, linear.columns);
        let arguments = KernelArguments::new()
            .with_buffer(x)
            .with_buffer(&linear.weight)
            .with_buffer(&linear.bias)
            .with_buffer(&out)
            .with_info([rows, linear.columns, linear.inner]);
        let count = CubeCount::new_2d(linear.columns.div_ceil(SIDE * COLUMN_LANES), rows.div_ceil(SIDE * row_lanes));
        client.launch(Box::new(kernel.clone()), count, arguments);
        out
    }

    fn activation(&self, client: &Client, rows: u32, columns: u32) -> Handle {
        client.empty(rows as usize * columns as usize * size_of::<f32>())
    }
}

const LOOKUP: &str = concat!(include_str!("../kernels/rows.wgsl"), include_str!("../kernels/lookup.wgsl"));
const NORM: &str = concat!(include_str!("../kernels/rows.wgsl"), include_str!("../kernels/norm.wgsl"));
const POOL: &str = concat!(include_str!("../kernels/rows.wgsl"), include_str!("../kernels/pool.wgsl"));
const ATTENTION: &str = include_str!("../kernels/attention.wgsl");
const LINEAR: &str = include_str!("../kernels/linear.wgsl");

/// Queries of a workgroup of the attention kernel.
const QUERIES: u32 = 64;
/// Rows, and columns, of a thread of the matrix product.
const SIDE: u32 = 8;
/// Threads of its workgroup along the columns, and down the rows.
const COLUMN_LANES: u32 = 8;
const TALL: u32 = 8;
const FLAT: u32 = 2;
/// Under this many rows, flat workgroups waste less and are more.
const TALL_ROWS_MIN: u32 = 256;
/// A mean shorter than this is not scaled to length 1.
const SHORTEST: f64 = 1e-12;

#[cfg(test)]
mod tests {
    use super::*;
    use naga::ShaderStage;
    use naga::back::{pipeline_constants::process_overrides, spv};
    use naga::valid::{Capabilities, ValidationFlags, Validator};

    /// Parses, validates, sets the constants and writes SPIR-V: all that is done to a kernel short of a device.
    fn check(code: &str, constants: &[(&str, f64)]) {
        let module = naga::front::wgsl::parse_str(code).unwrap_or_else(|e| panic!("{}", e.emit_to_string(code)));
        let info = Validator::new(ValidationFlags::all(), Capabilities::IMMEDIATES)
            .validate(&module)
            .unwrap_or_else(|e| panic!("{}", e.emit_to_string(code)));
        let constants = constants.iter().map(|&(name, value)| (name.to_owned(), value)).collect();
        let (module, info) =
            process_overrides(&module, &info, Some((ShaderStage::Compute, "main")), &constants).unwrap();
        let entry = spv::PipelineOptions { shader_stage: ShaderStage::Compute, entry_point: "main".to_owned() };
        assert!(!spv::write_vec(&module, &info, &spv::Options::default(), Some(&entry)).unwrap().is_empty());
    }

    #[test]
    fn kernels_are_valid() {
        for code in [LOOKUP, NORM, POOL] {
            check(code, &[("width", 384.0), ("epsilon", 1e-12)]);
        }
        check(ATTENTION, &[("width", 384.0)]);
        for (gelu, row_lanes) in [(0.0, TALL), (0.0, FLAT), (1.0, TALL), (1.0, FLAT)] {
            check(LINEAR, &[("gelu", gelu), ("row_lanes", f64::from(row_lanes))]);
        }
    }
}
