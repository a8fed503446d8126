//! A program that wants all of a CPU.

use super::super::error::DemoError;
use super::super::{clock, work};
use crate::units::Nanos;

/// Runs on `cpu` until the time is over or the parent is gone. It looks for the parent itself: a parent-death signal would
/// come as soon as the *thread* that started it ends.
pub fn run(cpu: usize, seconds: u64, parent: i32) -> Result<(), DemoError> {
    super::set_name(c"demo-busy");
    if !super::is_child_of(parent) {
        return Err(DemoError::NotByHand("its parent is not the one named"));
    }
    super::compete()?;
    super::pin(&[cpu])?;
    let end = clock::now() + Nanos(seconds.saturating_mul(1_000_000_000));
    let input = vec![1; 64 << 10];
    let mut output = input.clone();
    while clock::now() < end && super::is_child_of(parent) {
        std::hint::black_box(work::decode(&input, &mut output, 4));
    }
    Ok(())
}
