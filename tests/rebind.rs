//! Graphs whose buffers are exchanged.

use vkactor::{Client, Compute, CubeCount, Graph, Handle, KernelArguments, ServerError, WgslKernel};

const ADD: &str = "
    @group(0) @binding(0) var<storage, read> x: array<u32>;
    @group(0) @binding(1) var<storage, read_write> y: array<u32>;
    @compute @workgroup_size(64) fn main(@builtin(global_invocation_id) at: vec3<u32>) {
        if at.x < arrayLength(&y) { y[at.x] += x[at.x]; }
    }";

fn client() -> Client {
    // A stream of its own: the tests run side by side.
    Compute::new().and_then(|compute| compute.default_client()).expect("a Vulkan device").fork()
}

fn buffer(client: &Client, value: u32) -> Handle {
    client.create_from_slice(bytemuck::cast_slice(&[value; 100]))
}

fn add(client: &Client, x: &Handle, y: &Handle) {
    let arguments = KernelArguments::new().with_buffer(x).with_buffer(y);
    client.launch(Box::new(WgslKernel::new("add", ADD)), CubeCount::new_1d(2), arguments);
}

fn captured(client: &Client, run: impl FnOnce()) -> Graph {
    client.graph_prepare().expect("no window is open");
    client.start_capture().expect("the stream is prepared");
    run();
    client.stop_capture().expect("the window is good")
}

#[track_caller]
fn assert_all(client: &Client, handle: &Handle, value: u32) {
    let bytes = client.read_one(handle.clone()).expect("the buffer is good");
    assert_eq!(bytemuck::pod_collect_to_vec::<u8, u32>(&bytes), [value; 100]);
}

#[test]
fn later_replays_use_the_new_buffer_and_earlier_ones_the_old() {
    let client = client();
    let (one, ten, sum) = (buffer(&client, 1), buffer(&client, 10), buffer(&client, 0));
    let graph = captured(&client, || add(&client, &one, &sum));
    for _ in 0..3 {
        graph.replay().unwrap();
    }
    graph.rebind(&one, &ten).unwrap();
    graph.replay().unwrap();
    graph.replay().unwrap();
    graph.rebind(&ten, &one).unwrap();
    graph.replay().unwrap();
    assert_all(&client, &sum, 3 + 20 + 1);
}

/// The first launch of a long tape, one in its middle, and one behind that reads both buffers.
#[test]
fn any_launch_of_a_long_graph_is_rebound() {
    const LAUNCHES: u32 = 300;
    let client = client();
    let (one, two, sum, other) = (buffer(&client, 1), buffer(&client, 2), buffer(&client, 0), buffer(&client, 0));
    let graph = captured(&client, || {
        add(&client, &two, &sum);
        (0..LAUNCHES).for_each(|_| add(&client, &one, &sum));
        add(&client, &two, &other);
        (0..LAUNCHES).for_each(|_| add(&client, &one, &other));
        add(&client, &sum, &other);
    });
    graph.replay().unwrap();
    assert_all(&client, &sum, LAUNCHES + 2);
    assert_all(&client, &other, 2 * LAUNCHES + 4);
    let (mut before, mut in_sum, mut in_other) = (two, LAUNCHES + 2, 2 * LAUNCHES + 4);
    for value in [100, 1000, 3] {
        let next = buffer(&client, value);
        graph.rebind(&before, &next).unwrap();
        before = next;
        graph.replay().unwrap();
        in_sum += LAUNCHES + value;
        in_other += LAUNCHES + value + in_sum;
    }
    assert_all(&client, &sum, in_sum);
    assert_all(&client, &other, in_other);
}

#[test]
fn the_graph_keeps_what_it_was_given_and_lets_the_other_go() {
    let client = Compute::new().unwrap();
    let client = client.default_client().unwrap().fork();
    let (one, sum) = (buffer(&client, 1), buffer(&client, 0));
    let graph = captured(&client, || add(&client, &one, &sum));
    graph.rebind(&one, &buffer(&client, 5)).unwrap();
    drop(one);
    // What has the memory of either buffer now must be left alone.
    let others: Vec<Handle> = (0..20).map(|value| buffer(&client, value)).collect();
    graph.replay().unwrap();
    assert_all(&client, &sum, 5);
    others.iter().zip(0..).for_each(|(other, value)| assert_all(&client, other, value));
}

#[test]
fn what_cannot_be_rebound_is_refused_and_the_graph_is_as_before() {
    let client = client();
    let (one, two, sum) = (buffer(&client, 1), buffer(&client, 2), buffer(&client, 0));
    let graph = captured(&client, || add(&client, &one, &sum));
    let small = client.empty(40);
    let refused = |result: Result<(), ServerError>| matches!(result, Err(ServerError::Graph { .. }));
    assert!(refused(graph.rebind(&one, &small)), "another size");
    assert!(refused(graph.rebind(&two, &one)), "a buffer that the graph does not use");
    assert!(refused(graph.rebind(&one.clone().offset_end(4), &two.clone().offset_end(4))), "part of a binding");
    graph.replay().unwrap();
    assert_all(&client, &sum, 1);
}
