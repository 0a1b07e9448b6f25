//! Operations on a GPU that computes nothing.

use super::*;
use crate::kernels::Element;
use crate::ops::{
    AttentionCall, AttentionOperation, MaskOptions, SoftmaxCall, TENSORS, TensorView,
};
use crate::session::Tensor;
use crate::session::fake::Fake;
use pollster::block_on;

/// A tensor of `[1, 1, rows, head_dim]`, as far as a call knows it.
fn view(id: u32, rows: usize, head_dim: usize) -> TensorView {
    let strides = vec![rows * head_dim, rows * head_dim, head_dim, 1];
    TensorView { id, element: Element::F32, offset: 0, shape: vec![1, 1, rows, head_dim], strides }
}

struct Bench {
    fake: Rc<Fake>,
    gpu: Rc<dyn Gpu>,
    operations: Rc<Operations>,
}

impl Bench {
    /// Operations and bytes per millisecond.
    fn new(speed: f64) -> Self {
        let fake = Fake::new(false, speed, 0.0);
        let gpu: Rc<dyn Gpu> = Rc::clone(&fake) as Rc<dyn Gpu>;
        let operations = Rc::new(Operations::new(&gpu));
        Self { fake, gpu, operations }
    }

    fn tensors<const N: usize>(&self, elements: usize) -> [Tensor; N] {
        [(); N].map(|()| Tensor::zeros(&self.gpu, elements as u64, Element::F32).unwrap())
    }

    /// Attention of tokens with themselves, over tensors of its own.
    fn attend(&self, operation: AttentionOperation, tokens: usize, head_dim: usize) {
        let tensors: [Tensor; 9] = self.tensors(tokens * head_dim);
        let id = |role: Role| tensors[role as usize].buffer().0;
        let whole = |role| Some(view(id(role), tokens, head_dim));
        let mut given = [const { None }; TENSORS];
        for role in [Role::Query, Role::Key, Role::Value, Role::DOutput] {
            given[role as usize] = whole(role);
        }
        if operation == AttentionOperation::Backward {
            given[Role::Output as usize] = whole(Role::Output);
            let lse = view(id(Role::Logsumexp), tokens, 1);
            let (shape, strides) = (vec![1, 1, tokens], vec![tokens, tokens, 1]);
            given[Role::Logsumexp as usize] = Some(TensorView { shape, strides, ..lse });
        }
        let mask = MaskOptions { causal: true, ..MaskOptions::default() };
        let call =
            AttentionCall { operation, tensors: given, scale: None, soft_cap: Some(5.0), mask };
        let judged = call.judge().unwrap();
        let made: Vec<_> = judged.made.iter().map(|&role| BufferId(id(role))).collect();
        block_on(self.operations.run(&judged, &made).unwrap()).unwrap();
    }

    fn softmax(&self, rows: usize, columns: usize) -> Result<()> {
        let [input, output] = self.tensors(rows * columns);
        let judged = SoftmaxCall { input: view(input.buffer().0, rows, columns) }.judge()?;
        block_on(self.operations.run(&judged, &[output.buffer()])?)
    }

    fn planned(&self) -> usize {
        self.fake.plans.borrow().len()
    }
}

#[test]
fn a_hundred_equal_calls_take_one_plan() {
    let bench = Bench::new(3e10);
    for operation in [AttentionOperation::Forward, AttentionOperation::Backward] {
        let before = bench.planned();
        (0..100).for_each(|_| bench.attend(operation, 16, 32));
        assert_eq!(bench.planned() - before, 1, "{operation:?}");
    }
    // In turns with others, of which each takes one.
    for length in 1..=20 {
        bench.softmax(length, 8).unwrap();
        bench.attend(AttentionOperation::Forward, 16, 32);
    }
    assert_eq!(bench.planned(), 2 + 20);
}

#[test]
fn a_thousand_shapes_keep_a_bounded_number_of_plans() {
    let bench = Bench::new(3e10);
    for rows in 1..=1000 {
        bench.softmax(rows, 4).unwrap();
        let held = bench.gpu.counters().gpu_bytes;
        assert_eq!(held, 256 * rows.min(MOST_PLANS) as u64, "after {rows} shapes");
    }
    assert_eq!(bench.operations.kept.borrow().len(), MOST_PLANS);
    let before = bench.planned();
    bench.softmax(1000, 4).unwrap();
    bench.softmax(1001 - MOST_PLANS, 4).unwrap();
    assert_eq!(bench.planned(), before, "the last ones are there");
    bench.softmax(1, 4).unwrap();
    assert_eq!(bench.planned(), before + 1, "the first one went");
    let Bench { gpu, operations, .. } = bench;
    drop(operations);
    assert_eq!(gpu.counters().gpu_bytes, 0);
}

#[test]
fn what_cannot_be_planned_leaves_nothing() {
    let bench = Bench::new(3e10);
    bench.softmax(3, 8).unwrap();
    let held = bench.gpu.counters().gpu_bytes;
    let [input] = bench.tensors(64);
    let judged = SoftmaxCall { input: view(input.buffer().0, 2, 8) }.judge().unwrap();
    // No tensor for the output.
    let error = bench.operations.run(&judged, &[]).map(drop).unwrap_err();
    assert!(error.message.contains("no buffer"), "{error}");
    drop(input);
    assert_eq!(bench.gpu.counters().gpu_bytes, held);
    assert_eq!(bench.operations.kept.borrow().len(), 1);
}

#[test]
fn submits_end_between_dispatches_that_take_long() {
    // A slow GPU: 3e7 operations per millisecond.
    let bench = Bench::new(3e7);
    bench.attend(AttentionOperation::Backward, 256, 64);
    assert_eq!(bench.fake.submits.borrow().len(), 1);
    // 6, then 8 operations for each score and element: 13 and 18 ms, then 54 and 72.
    for (tokens, submits) in [(1024, 1), (2048, 2)] {
        bench.fake.submits.borrow_mut().clear();
        bench.attend(AttentionOperation::Backward, tokens, 64);
        let times = bench.fake.submits.borrow();
        assert_eq!(times.len(), submits, "{tokens}: {times:?}");
        assert!(times.iter().all(|&time| time <= 100.0), "{tokens}: {times:?}");
    }
}
