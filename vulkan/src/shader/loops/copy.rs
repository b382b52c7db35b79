//! Copies of a block of naga's IR, each with expressions of its own.
//!
//! The validator lets sibling blocks emit an expression each; the writer does not, and a result has one statement.

use std::collections::HashMap;

use naga::{Arena, AtomicFunction, Block, Expression, GatherMode, Handle, Range, Span, Statement};

/// Whether [`Copier`] knows the operands of `expression`.
pub(super) fn copyable(expression: &Expression) -> bool {
    operands(&mut expression.clone(), |_| {})
}

/// Copies blocks of one function.
#[derive(Debug)]
pub(super) struct Copier<'a> {
    expressions: &'a mut Arena<Expression>,
    /// What stands for each expression of the original in the copy at hand.
    copies: HashMap<Handle<Expression>, Handle<Expression>>,
}

impl<'a> Copier<'a> {
    pub(super) fn new(expressions: &'a mut Arena<Expression>) -> Self {
        Self { expressions, copies: HashMap::new() }
    }

    /// A copy of `block`, which names nothing outside that cannot be seen where the copy goes.
    ///
    /// # Panics
    /// Where `block` holds expressions that are not [`copyable`].
    pub(super) fn block(&mut self, block: &Block) -> Block {
        let mut copy = Block::with_capacity(block.len());
        for (statement, span) in block.span_iter() {
            copy.push(self.statement(statement), *span);
        }
        copy
    }

    fn statement(&mut self, statement: &Statement) -> Statement {
        let mut copy = match statement {
            Statement::Emit(range) => return Statement::Emit(self.emitted(range)),
            Statement::Block(inner) => return Statement::Block(self.block(inner)),
            Statement::If { condition, accept, reject } => {
                Statement::If { condition: *condition, accept: self.block(accept), reject: self.block(reject) }
            }
            Statement::Switch { selector, cases } => {
                let mut cases = cases.clone();
                cases.iter_mut().for_each(|case| case.body = self.block(&case.body));
                Statement::Switch { selector: *selector, cases }
            }
            Statement::Loop { body, continuing, break_if } => {
                Statement::Loop { body: self.block(body), continuing: self.block(continuing), break_if: *break_if }
            }
            plain => plain.clone(),
        };
        if let Some(result) = result(&mut copy) {
            *result = self.expression(*result);
        }
        uses(&mut copy, |operand| *operand = self.copy_of(*operand));
        copy
    }

    fn emitted(&mut self, range: &Range<Expression>) -> Range<Expression> {
        // What is appended in a row lies in a row.
        let copies: Vec<_> = range.clone().map(|expression| self.expression(expression)).collect();
        match copies.as_slice() {
            [] => range.clone(),
            [only] => Range::new_from_bounds(*only, *only),
            [first, .., last] => Range::new_from_bounds(*first, *last),
        }
    }

    fn expression(&mut self, original: Handle<Expression>) -> Handle<Expression> {
        let mut copy = self.expressions[original].clone();
        let known = operands(&mut copy, |operand| *operand = self.copy_of(*operand));
        assert!(known, "{copy:?} is not for copying");
        let copy = self.expressions.append(copy, Span::UNDEFINED);
        self.copies.insert(original, copy);
        copy
    }

    fn copy_of(&self, original: Handle<Expression>) -> Handle<Expression> {
        self.copies.get(&original).copied().unwrap_or(original)
    }
}

/// Visits the operands of `expression`. False for what compute kernels here do not use: images, rays and matrices.
fn operands(expression: &mut Expression, mut visit: impl FnMut(&mut Handle<Expression>)) -> bool {
    match expression {
        Expression::Literal(_)
        | Expression::Constant(_)
        | Expression::ZeroValue(_)
        | Expression::FunctionArgument(_)
        | Expression::GlobalVariable(_)
        | Expression::LocalVariable(_)
        | Expression::CallResult(_)
        | Expression::AtomicResult { .. }
        | Expression::SubgroupBallotResult
        | Expression::SubgroupOperationResult { .. } => {}
        Expression::Compose { components, .. } => components.iter_mut().for_each(visit),
        Expression::Access { base, index } => [base, index].into_iter().for_each(visit),
        Expression::AccessIndex { base: operand, .. }
        | Expression::Splat { value: operand, .. }
        | Expression::Swizzle { vector: operand, .. }
        | Expression::Load { pointer: operand }
        | Expression::Unary { expr: operand, .. }
        | Expression::Relational { argument: operand, .. }
        | Expression::As { expr: operand, .. }
        | Expression::ArrayLength(operand) => visit(operand),
        Expression::Binary { left, right, .. } => [left, right].into_iter().for_each(visit),
        Expression::Select { condition, accept, reject } => [condition, accept, reject].into_iter().for_each(visit),
        Expression::Math { arg, arg1, arg2, arg3, .. } => {
            visit(arg);
            [arg1, arg2, arg3].into_iter().flatten().for_each(visit);
        }
        _ => return false,
    }
    true
}

/// The expression that `statement` gives a value to.
fn result(statement: &mut Statement) -> Option<&mut Handle<Expression>> {
    match statement {
        Statement::Atomic { result, .. } | Statement::Call { result, .. } => result.as_mut(),
        Statement::SubgroupBallot { result, .. }
        | Statement::SubgroupGather { result, .. }
        | Statement::SubgroupCollectiveOperation { result, .. } => Some(result),
        _ => None,
    }
}

/// Visits the expressions that `statement` itself uses.
fn uses(statement: &mut Statement, mut visit: impl FnMut(&mut Handle<Expression>)) {
    match statement {
        Statement::If { condition: operand, .. }
        | Statement::Switch { selector: operand, .. }
        | Statement::Loop { break_if: Some(operand), .. }
        | Statement::Return { value: Some(operand) }
        | Statement::SubgroupBallot { predicate: Some(operand), .. }
        | Statement::SubgroupCollectiveOperation { argument: operand, .. } => visit(operand),
        Statement::Store { pointer, value } => [pointer, value].into_iter().for_each(visit),
        Statement::Atomic { pointer, fun, value, .. } => {
            [pointer, value].into_iter().for_each(&mut visit);
            if let AtomicFunction::Exchange { compare: Some(compare) } = fun {
                visit(compare);
            }
        }
        Statement::Call { arguments, .. } => arguments.iter_mut().for_each(visit),
        Statement::SubgroupGather { mode, argument, .. } => {
            visit(argument);
            if let Some(lane) = lane(mode) {
                visit(lane);
            }
        }
        // Nothing used, or nothing that is ever copied.
        _ => {}
    }
}

/// The expression that says from which lane a value comes.
fn lane(mode: &mut GatherMode) -> Option<&mut Handle<Expression>> {
    match mode {
        GatherMode::BroadcastFirst | GatherMode::QuadSwap(_) => None,
        GatherMode::Broadcast(lane)
        | GatherMode::Shuffle(lane)
        | GatherMode::ShuffleDown(lane)
        | GatherMode::ShuffleUp(lane)
        | GatherMode::ShuffleXor(lane)
        | GatherMode::QuadBroadcast(lane) => Some(lane),
    }
}
