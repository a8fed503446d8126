//! A program that wants all of a CPU.

use super::super::error::DemoError;
use super::super::{clock, work};
use crate::units::Nanos;

/// Runs on `cpu` until the time is over or the parent is gone.
pub fn run(cpu: usize, seconds: u64, parent: i32) -> Result<(), DemoError> {
    super::set_name(c"demo-busy");
    super::die_with(parent)?;
    super::pin(&[cpu])?;
    let end = clock::now() + Nanos(seconds.saturating_mul(1_000_000_000));
    let input = vec![1; 64 << 10];
    let mut output = input.clone();
    while clock::now() < end {
        std::hint::black_box(work::decode(&input, &mut output, 4));
    }
    Ok(())
}
