//! Loops with fewer back-edges, for a driver that ends loops after a number of them.
//!
//! Mesa's llvmpipe (lavapipe; found with 22.3.6 on 2026-12-01, `LP_MAX_TGSI_LOOP_ITERATIONS` in its sources) counts the
//! back-edges that an invocation takes in all its loops together. After 65,535 of them each loop runs once more and
//! ends as if it were done: a wrong result that nobody is told of. So a loop without loops inside is repeated within
//! its own body, up to [`FACTOR_MAX`] times, and a back-edge stands for that many iterations:
//!
//! ```text
//! loop { body continuing { next } }  →  loop { { body next } { body next } … }
//! ```
//!
//! What remains: 65,535 back-edges for all loops of an invocation, each worth [`FACTOR_MAX`] iterations of a small
//! innermost loop (8.4 million in all), and fewer of a large one ([`LOOP_SIZE_MAX`]): about 2 million with one access
//! to memory, 1 million with two. Loops around others and loops with barriers stay as they are, and so do kernels in
//! SPIR-V. Loops of few iterations, known from the code, do not count as loops: the driver dissolves them.
//!
//! What it costs: this driver runs the rest of a body with all lanes masked off when the loop ends at the top of it,
//! so a loop that turns a few times takes as long as one that turns [`FACTOR_MAX`] times. Loops whose count can be
//! read off the code are spared that.
//!
//! It can go for the versions of the driver on which the test `the_driver_cuts_long_loops_short` fails.

mod copy;

use naga::{
    AddressSpace, Arena, BinaryOperator, Block, Constant, Expression, Function, GlobalVariable, Handle, Literal,
    LocalVariable, Module, Range, Scalar, Span, Statement, SwitchCase, Type, TypeInner,
};

use self::copy::{Copier, copyable};

/// Most copies of a body: 65,535 back-edges are 8.4 million iterations.
const FACTOR_MAX: u32 = 128;

/// Largest loop that comes out, in expressions and statements: [`FACTOR_MAX`] copies of one of 18, such as a counted
/// loop around a step of a random number generator. Its pipeline and first launch take 0.15 s in place of 0.05
/// (lavapipe 22.3.6, two busy cores), and so do those of a matrix product, with fewer copies.
const LOOP_SIZE_MAX: u32 = 2_304;

/// Largest sum over the loops of a kernel.
const KERNEL_SIZE_MAX: u32 = 8 * LOOP_SIZE_MAX;

/// Expressions that an access to memory counts for: the driver makes a loop over the lanes of it, and compiles that
/// about so much longer.
const MEMORY_SIZE: u32 = 48;

/// A known count up to which a loop is left to the driver, which repeats the body itself (`max_unroll_iterations` of
/// its compiler) and then knows the index in each copy.
const COUNT_LEFT_MAX: u32 = 32;

/// A known count up to which a loop that is in no other is left alone: it takes 64 of them in a kernel to matter.
const COUNT_ALONE_MAX: u32 = 1_024;

/// Repeats the bodies of the loops of `module`, which is valid and has no overrides. It has to be validated again.
pub(super) fn unroll(module: &mut Module) {
    let boolean = Type { name: None, inner: TypeInner::Scalar(Scalar::BOOL) };
    let boolean = module.types.insert(boolean, Span::UNDEFINED);
    let Module { constants, global_variables, global_expressions, functions, entry_points, .. } = module;
    let loops: u32 = functions.iter().map(|(_, f)| loop_count(&f.body)).sum::<u32>()
        + entry_points.iter().map(|e| loop_count(&e.function.body)).sum::<u32>();
    let size_max = LOOP_SIZE_MAX.min(KERNEL_SIZE_MAX / loops.max(1));
    // A function lies behind those that it calls.
    let mut callees: Vec<Size> = Vec::with_capacity(functions.len());
    // Functions may be called in loops; entry points are not.
    let functions = functions.iter_mut().map(|(_, function)| (function, true));
    let entries = entry_points.iter_mut().map(|entry| (&mut entry.function, false));
    for (function, nested) in functions.chain(entries) {
        let mut body = std::mem::take(&mut function.body);
        let stores = stores(function, &body);
        let mut unroller = Unroller {
            constants,
            globals: global_expressions,
            variables: global_variables,
            callees: &callees,
            stores,
            boolean,
            size_max,
            function,
        };
        let size = unroller.size(&body);
        unroller.visit(&mut body, nested);
        function.body = body;
        callees.push(size);
    }
}

/// How large a block is, and whether it may be repeated: not with loops or barriers inside.
#[derive(Debug, Clone, Copy)]
struct Size {
    expressions: u32,
    repeatable: bool,
}

impl Size {
    const NOTHING: Self = Self { expressions: 0, repeatable: true };
    const FIXED: Self = Self { expressions: 1, repeatable: false };

    fn of(expressions: u32) -> Self {
        Self { expressions, repeatable: true }
    }

    fn and(self, other: Self) -> Self {
        Self {
            expressions: self.expressions.saturating_add(other.expressions),
            repeatable: self.repeatable && other.repeatable,
        }
    }
}

/// How often a loop turns, as far as the code tells.
#[derive(Debug, Clone, Copy)]
struct Count {
    max: u32,
    /// Always so often, unless it is left early.
    exact: bool,
}

impl Count {
    /// Whether the driver repeats the body itself.
    fn is_left(self) -> bool {
        self.exact && self.max <= COUNT_LEFT_MAX
    }
}

/// A local variable that tells whether the current copy was left by a `continue`.
#[derive(Debug, Clone, Copy)]
struct Skipped {
    pointer: Handle<Expression>,
    yes: Handle<Expression>,
    no: Handle<Expression>,
}

/// One function of a module, without its body.
#[derive(Debug)]
struct Unroller<'a> {
    constants: &'a Arena<Constant>,
    globals: &'a Arena<Expression>,
    variables: &'a Arena<GlobalVariable>,
    callees: &'a [Size],
    /// Stores to each local variable, by index.
    stores: Vec<u32>,
    boolean: Handle<Type>,
    size_max: u32,
    function: &'a mut Function,
}

impl Unroller<'_> {
    /// Unrolls what is in `block`, from the inside out. `nested` where `block` may run many times.
    fn visit(&mut self, block: &mut Block, nested: bool) {
        for at in 0..block.len() {
            let (before, rest) = block.split_at_mut(at);
            match &mut rest[0] {
                Statement::Block(inner) => self.visit(inner, nested),
                Statement::If { accept, reject, .. } => {
                    self.visit(accept, nested);
                    self.visit(reject, nested);
                }
                Statement::Switch { cases, .. } => cases.iter_mut().for_each(|case| self.visit(&mut case.body, nested)),
                Statement::Loop { body, continuing, break_if } => {
                    let factor = self.factor(before, body, continuing, nested);
                    if factor > 1 {
                        self.repeat(body, continuing, break_if, factor);
                    } else {
                        self.visit(body, true);
                        self.visit(continuing, true);
                    }
                }
                _ => {}
            }
        }
    }

    /// How many copies of its body a loop becomes. `before` is what runs before it in the same block.
    fn factor(&self, before: &[Statement], body: &Block, continuing: &Block, nested: bool) -> u32 {
        let size = self.size(body).and(self.size(continuing));
        let ends = matches!(body.last(), Some(Statement::Break | Statement::Return { .. }));
        let turns = !ends || continues(body);
        if !size.repeatable || !turns {
            return 1;
        }
        let factor = FACTOR_MAX.min(self.size_max / size.expressions.max(1)).max(1);
        match self.count(before, body, continuing) {
            Some(Count { max, .. }) if max <= COUNT_ALONE_MAX && !nested => 1,
            Some(count) if count.is_left() => 1,
            // One more for the test that ends it.
            Some(Count { max, .. }) => factor.min(max.saturating_add(1)),
            None => factor,
        }
    }

    /// Makes `factor` copies of the body of a loop, each followed by what goes between iterations.
    fn repeat(
        &mut self,
        body: &mut Block,
        continuing: &mut Block,
        break_if: &mut Option<Handle<Expression>>,
        factor: u32,
    ) {
        let mut copy = Block::with_capacity(body.len() + continuing.len() + 2);
        if continues(body) {
            let skipped = self.add_skipped();
            copy.push(Statement::Store { pointer: skipped.pointer, value: skipped.no }, Span::UNDEFINED);
            let body = self.guarded(std::mem::take(body), skipped);
            copy.extend_block(body);
        } else {
            copy.append(body);
        }
        copy.append(continuing);
        if let Some(condition) = break_if.take() {
            let accept = Block::from_vec(vec![Statement::Break]);
            copy.push(Statement::If { condition, accept, reject: Block::new() }, Span::UNDEFINED);
        }
        let mut copier = Copier::new(&mut self.function.expressions);
        let mut copies: Vec<_> = (1..factor).map(|_| Statement::Block(copier.block(&copy))).collect();
        copies.push(Statement::Block(copy));
        *body = Block::from_vec(copies);
    }

    /// `block` with a store in place of each `continue`, and all that a `continue` passes over under a condition.
    fn guarded(&mut self, block: Block, skipped: Skipped) -> Block {
        let mut guarded = Block::with_capacity(block.len());
        let mut rest = block.span_into_iter();
        while let Some((mut statement, span)) = rest.next() {
            if !statement_continues(&statement) {
                guarded.push(statement, span);
                continue;
            }
            let mut guard = |inner: &mut Block| *inner = self.guarded(std::mem::take(inner), skipped);
            match &mut statement {
                Statement::Block(inner) => guard(inner),
                Statement::If { accept, reject, .. } => {
                    guard(accept);
                    guard(reject);
                }
                Statement::Switch { cases, .. } => cases.iter_mut().for_each(|case| guard(&mut case.body)),
                _ => {
                    // The `continue` itself. What follows it is never reached.
                    guarded.push(Statement::Store { pointer: skipped.pointer, value: skipped.yes }, span);
                    return guarded;
                }
            }
            guarded.push(statement, span);
            let mut passed = Block::new();
            rest.by_ref().for_each(|item| passed.extend(Some(item)));
            if !passed.is_empty() {
                let reject = self.guarded(passed, skipped);
                let load = Expression::Load { pointer: skipped.pointer };
                let condition = self.function.expressions.append(load, Span::UNDEFINED);
                guarded.push(Statement::Emit(Range::new_from_bounds(condition, condition)), Span::UNDEFINED);
                guarded.push(Statement::If { condition, accept: Block::new(), reject }, Span::UNDEFINED);
            }
        }
        guarded
    }

    fn add_skipped(&mut self) -> Skipped {
        let variable = LocalVariable { name: None, ty: self.boolean, init: None };
        let variable = self.function.local_variables.append(variable, Span::UNDEFINED);
        let mut add = |expression| self.function.expressions.append(expression, Span::UNDEFINED);
        Skipped {
            pointer: add(Expression::LocalVariable(variable)),
            yes: add(Expression::Literal(Literal::Bool(true))),
            no: add(Expression::Literal(Literal::Bool(false))),
        }
    }

    fn size(&self, block: &[Statement]) -> Size {
        let sizes = (0..block.len()).map(|at| self.statement_size(&block[..at], &block[at]));
        sizes.fold(Size::NOTHING, Size::and)
    }

    fn statement_size(&self, before: &[Statement], statement: &Statement) -> Size {
        match statement {
            Statement::Emit(range) => range.clone().map(|e| self.expression_size(e)).fold(Size::NOTHING, Size::and),
            Statement::Block(inner) => self.size(inner),
            Statement::If { accept, reject, .. } => Size::of(1).and(self.size(accept)).and(self.size(reject)),
            Statement::Switch { cases, .. } => {
                cases.iter().fold(Size::of(1), |size, case| size.and(Size::of(1)).and(self.size(&case.body)))
            }
            Statement::Loop { body, continuing, .. } => {
                let size = self.size(body).and(self.size(continuing));
                match self.count(before, body, continuing) {
                    // Straight code, once the driver has repeated it.
                    Some(count) if count.is_left() => {
                        Size { expressions: size.expressions.saturating_mul(count.max.max(1)), ..size }
                    }
                    _ => Size { repeatable: false, ..size },
                }
            }
            Statement::Break | Statement::Continue | Statement::Return { .. } => Size::of(1),
            Statement::Store { pointer, .. } => Size::of(self.access_size(*pointer)),
            Statement::Atomic { .. } => Size::of(MEMORY_SIZE),
            Statement::Call { function, .. } => self.callees[function.index()],
            Statement::SubgroupBallot { .. }
            | Statement::SubgroupGather { .. }
            | Statement::SubgroupCollectiveOperation { .. } => Size::of(MEMORY_SIZE),
            // Barriers, and what compute kernels here do not have.
            _ => Size::FIXED,
        }
    }

    fn expression_size(&self, expression: Handle<Expression>) -> Size {
        match &self.function.expressions[expression] {
            Expression::Load { pointer } => Size::of(self.access_size(*pointer)),
            other if copyable(other) => Size::of(1),
            _ => Size::FIXED,
        }
    }

    fn access_size(&self, mut pointer: Handle<Expression>) -> u32 {
        loop {
            match self.function.expressions[pointer] {
                Expression::Access { base, .. } | Expression::AccessIndex { base, .. } => pointer = base,
                Expression::LocalVariable(_) => return 1,
                // At an address that all lanes share.
                Expression::GlobalVariable(v) if self.variables[v].space == AddressSpace::Immediate => return 1,
                _ => return MEMORY_SIZE,
            }
        }
    }

    /// How often a loop turns at most, where it counts one variable up to a constant in constant steps.
    fn count(&self, before: &[Statement], body: &Block, continuing: &Block) -> Option<Count> {
        let end = body.iter().find_map(|statement| match statement {
            Statement::If { condition, accept, reject } if accept.is_empty() && breaks(reject) => Some(*condition),
            _ => None,
        })?;
        let Expression::Binary { op, left, right } = self.function.expressions[end] else { return None };
        let (variable, (bound, signed)) = (self.loaded(left)?, self.number(right)?);
        let value = self.stored(continuing, variable);
        // A step within the body could be passed over.
        let value = value.or_else(|| (!continues(body)).then(|| self.stored(body, variable))?)?;
        let Expression::Binary { op: BinaryOperator::Add, left, right } = self.function.expressions[value] else {
            return None;
        };
        let (step, _) = self.number(right).filter(|(step, _)| *step > 0)?;
        if self.loaded(left) != Some(variable) {
            return None;
        }
        let start = match (self.stores[variable.index()], self.stored(before, variable)) {
            (1, _) => self.function.local_variables[variable].init?,
            (2, Some(start)) => start,
            _ => return None,
        };
        let (start, exact) = match self.number(start) {
            Some((start, _)) => (start, true),
            // The least that it can be.
            None if !signed => (0, false),
            None => return None,
        };
        let last = match op {
            BinaryOperator::Less => bound - 1,
            BinaryOperator::LessEqual => bound,
            _ => return None,
        };
        let distance = last - start;
        let count = if distance < 0 { 0 } else { distance / step + 1 };
        Some(Count { max: u32::try_from(count).unwrap_or(u32::MAX), exact })
    }

    /// The value of the last store to `variable` right in `block`.
    fn stored(&self, block: &[Statement], variable: Handle<LocalVariable>) -> Option<Handle<Expression>> {
        block.iter().rev().find_map(|statement| match statement {
            Statement::Store { pointer, value } if local(self.function, *pointer) == Some(variable) => Some(*value),
            _ => None,
        })
    }

    fn loaded(&self, expression: Handle<Expression>) -> Option<Handle<LocalVariable>> {
        match self.function.expressions[expression] {
            Expression::Load { pointer } => local(self.function, pointer),
            _ => None,
        }
    }

    /// The value of a constant, and whether its type is signed.
    fn number(&self, expression: Handle<Expression>) -> Option<(i64, bool)> {
        let literal = match self.function.expressions[expression] {
            Expression::Constant(constant) => &self.globals[self.constants[constant].init],
            ref other => other,
        };
        match *literal {
            Expression::Literal(Literal::U32(value)) => Some((value.into(), false)),
            Expression::Literal(Literal::I32(value)) => Some((value.into(), true)),
            _ => None,
        }
    }
}

fn local(function: &Function, pointer: Handle<Expression>) -> Option<Handle<LocalVariable>> {
    match function.expressions[pointer] {
        Expression::LocalVariable(variable) => Some(variable),
        _ => None,
    }
}

fn breaks(block: &Block) -> bool {
    matches!(**block, [Statement::Break])
}

/// Whether a `continue` in `block` belongs to the loop around it.
fn continues(block: &Block) -> bool {
    block.iter().any(statement_continues)
}

fn statement_continues(statement: &Statement) -> bool {
    match statement {
        Statement::Continue => true,
        Statement::Loop { .. } => false,
        _ => inside(statement).any(continues),
    }
}

/// The blocks of a statement.
fn inside(statement: &Statement) -> impl Iterator<Item = &Block> {
    let (pair, cases): ([Option<&Block>; 2], &[SwitchCase]) = match statement {
        Statement::Block(block) => ([Some(block), None], &[]),
        Statement::If { accept, reject, .. } => ([Some(accept), Some(reject)], &[]),
        Statement::Loop { body, continuing, .. } => ([Some(body), Some(continuing)], &[]),
        Statement::Switch { cases, .. } => ([None, None], cases),
        _ => ([None, None], &[]),
    };
    pair.into_iter().flatten().chain(cases.iter().map(|case| &case.body))
}

fn loop_count(block: &Block) -> u32 {
    let of = |s| u32::from(matches!(s, &Statement::Loop { .. })) + inside(s).map(loop_count).sum::<u32>();
    block.iter().map(of).sum()
}

/// How many stores there are to each local variable. One that a call may store to has very many.
fn stores(function: &Function, body: &Block) -> Vec<u32> {
    fn count(function: &Function, block: &Block, stores: &mut [u32]) {
        for statement in block {
            let (pointers, weight): (&[Handle<Expression>], u32) = match statement {
                Statement::Store { pointer, .. } => (std::slice::from_ref(pointer), 1),
                Statement::Call { arguments, .. } => (arguments, 1 << 16),
                _ => (&[], 0),
            };
            for variable in pointers.iter().filter_map(|pointer| local(function, *pointer)) {
                let stores = &mut stores[variable.index()];
                *stores = stores.saturating_add(weight);
            }
            inside(statement).for_each(|inner| count(function, inner, stores));
        }
    }
    let mut stores = vec![0; function.local_variables.len()];
    count(function, body, &mut stores);
    stores
}
