//! The example's model against vectors that other programs computed: `tests/data/minilm.json` holds 48 sentences, their
//! token ids and their unit vectors, from a forward pass in float64.
//!
//! Needs the model: `scripts/fetch-model.sh` puts it in place, or `VKACTOR_MODEL` names its folder.

#[path = "../../examples/embed/embedder/mod.rs"]
mod embedder;
mod reference;
#[path = "../../examples/embed/search.rs"]
mod search;
#[path = "../common/trace_file.rs"]
#[expect(dead_code, reason = "no two clocks are compared here")]
mod trace_file;

use embedder::{Embedder, model_dir};
use serde::Deserialize;
use tokio::sync::OnceCell;
use trace_file::TraceFile;
use vkactor::Compute;

#[derive(Deserialize)]
struct Golden {
    tolerance: f32,
    sentences: Vec<String>,
    token_ids: Vec<Vec<u32>>,
    embeddings: Vec<Vec<f32>>,
}

impl Golden {
    fn read() -> Self {
        serde_json::from_str(include_str!("../data/minilm.json")).expect("the golden data are well formed")
    }

    fn sentences(&self, members: &[usize]) -> Vec<String> {
        members.iter().map(|&member| self.sentences[member].clone()).collect()
    }

    /// Every component of `vector` is that of `sentence`, within the tolerance.
    #[track_caller]
    fn check(&self, sentence: usize, vector: &[f32], how: &str) {
        let wanted = &self.embeddings[sentence];
        assert_eq!(vector.len(), wanted.len(), "sentence {sentence}, {how}");
        let is_near = |(a, b): (&f32, &f32)| (a - b).abs() <= self.tolerance;
        // No NaN is near.
        let off = vector.iter().zip(wanted).position(|pair| !is_near(pair));
        if let Some(at) = off {
            panic!("sentence {sentence}, {how}: component {at} is {}, not {}", vector[at], wanted[at]);
        }
    }
}

/// The model on the default device, loaded once for all tests.
async fn embedder() -> &'static Embedder {
    static EMBEDDER: OnceCell<(Compute, Embedder)> = OnceCell::const_new();
    let load = async || {
        let compute = Compute::new().expect("a Vulkan device");
        let client = compute.default_client().expect("the device starts");
        let embedder = Embedder::load(client, &model_dir()).await.unwrap_or_else(|error| panic!("{error}"));
        (compute, embedder)
    };
    &EMBEDDER.get_or_init(load).await.1
}

#[tokio::test]
async fn token_ids_are_those_of_the_golden_data() {
    let golden = Golden::read();
    let tokens = embedder().await.tokens(golden.sentences.clone()).await.unwrap();
    for (sentence, (found, wanted)) in tokens.iter().zip(&golden.token_ids).enumerate() {
        assert_eq!(found, wanted, "sentence {sentence}");
    }
    assert_eq!(tokens.len(), golden.token_ids.len());
}

#[tokio::test]
async fn each_sentence_alone_has_its_vector() {
    let golden = Golden::read();
    let vectors = embedder().await.embed(golden.sentences.clone(), 1, |_| ()).await.unwrap();
    for sentence in 0..golden.sentences.len() {
        golden.check(sentence, vectors.row(sentence), "alone");
    }
}

#[tokio::test]
async fn a_sentence_has_the_same_vector_beside_longer_ones() {
    let golden = Golden::read();
    // 2 tokens beside 256, 12 beside 143, from 35 to 2, and all of one length.
    for members in [&[33, 17][..], &[0, 16], &[20, 34, 46, 10, 37, 43, 15], &[26, 27, 25, 45]] {
        let vectors = embedder().await.embed(golden.sentences(members), members.len(), |_| ()).await.unwrap();
        for (row, &sentence) in members.iter().enumerate() {
            golden.check(sentence, vectors.row(row), &format!("among {members:?}"));
        }
    }
}

#[tokio::test]
async fn batches_come_back_in_the_order_of_the_texts_and_neighbours_agree() {
    let golden = Golden::read();
    let mut done = 0;
    let vectors = embedder().await.embed(golden.sentences.clone(), 2, |count| done += count).await.unwrap();
    assert_eq!(done, golden.sentences.len());
    assert_eq!(vectors.len(), golden.sentences.len());
    assert_eq!(vectors.tokens, golden.token_ids.iter().map(Vec::len).sum::<usize>());
    for sentence in 0..golden.sentences.len() {
        golden.check(sentence, vectors.row(sentence), "in batches of 2");
    }
    // Pairs that mean the same: after itself, each is the other's nearest.
    for (a, b) in [(0, 1), (2, 3), (4, 5), (6, 7), (8, 9), (10, 11), (12, 13), (14, 16), (37, 38)] {
        for (one, other) in [(a, b), (b, a)] {
            let found = search::nearest(&vectors, vectors.row(one), 2);
            assert_eq!([found[0].0, found[1].0], [one, other], "neighbours of sentence {one}");
        }
    }
}

#[tokio::test]
async fn replays_of_recordings_give_the_same_vectors_and_leave_the_device_well() {
    let golden = Golden::read();
    // All of one shape, 2 sentences by 16 tokens: one recording, replayed with other sentences while it is in flight.
    let members = [0, 10, 7, 33, 12, 29, 2, 43];
    let recording = embedder().await.recording();
    for round in ["first", "second"] {
        let vectors = recording.embed(golden.sentences(&members), 2, |_| ()).await.unwrap();
        for (row, &sentence) in members.iter().enumerate() {
            golden.check(sentence, vectors.row(row), &format!("in the {round} round of replays"));
        }
    }
    drop(recording);
    let vectors = embedder().await.embed(golden.sentences(&[10]), 1, |_| ()).await.unwrap();
    golden.check(10, vectors.row(0), "after the recordings are gone");
}

#[tokio::test]
async fn no_texts_have_no_vectors() {
    let vectors = embedder().await.embed(Vec::new(), 8, |_| panic!("nothing to do")).await.unwrap();
    assert_eq!((vectors.len(), vectors.tokens), (0, 0));
}

#[tokio::test]
async fn a_missing_model_says_how_to_get_it() {
    let client = Compute::new().expect("a Vulkan device").default_client().expect("the device starts");
    let empty = tempfile::tempdir().unwrap();
    let Err(error) = Embedder::load(client, empty.path()).await else { panic!("loaded a model from nowhere") };
    assert!(error.to_string().contains("scripts/fetch-model.sh"), "{error}");
}

#[test]
fn the_golden_data_are_what_a_plain_forward_pass_gives() {
    let golden = Golden::read();
    let model = reference::Bert::read(&model_dir());
    // The short ones: it is slow.
    for sentence in (0..golden.sentences.len()).filter(|&s| golden.token_ids[s].len() < 10) {
        golden.check(sentence, &model.embed(&golden.token_ids[sentence]), "on the CPU");
    }
}

#[tokio::test]
async fn a_trace_of_the_model_names_its_kernels() {
    let golden = Golden::read();
    let embedder = embedder().await;
    let client = Compute::new().expect("a Vulkan device").default_client().expect("the device runs");
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("trace.json");
    client.trace_start_async(&path).await.unwrap();
    embedder.embed(golden.sentences(&[0, 1]), 2, |_| ()).await.unwrap();
    let summary = client.trace_stop_async().await.unwrap();
    let file = TraceFile::read(&path);
    for kernel in ["lookup", "norm", "linear", "linear_gelu", "attention", "pool"] {
        assert!(file.count(kernel) > 0, "no slice of {kernel}");
    }
    assert!(file.tracks().iter().all(|track| track.starts_with("stream ")), "{:?}", file.tracks());
    assert!(file.busy_ns() > 0 && summary.busy <= summary.window, "{summary:?}");
    assert!(file.counters["memory"].iter().any(|memory| memory.args["in_use"].as_u64() > Some(1 << 20)));
    assert!(file.slices.iter().any(|slice| slice.args["submission"].as_u64() > Some(0)));
}
