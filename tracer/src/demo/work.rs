//! The workers' decoding: a fixed amount of CPU work per sample, so that a worker without a CPU falls behind, as a real
//! one does (work measured in wall time would never be starved).

use super::clock;
use crate::units::Nanos;

/// Decodes `input` into `output` (same length) in so many passes; each pass reads every byte and depends on the pass
/// before it. Returns a checksum.
pub fn decode(input: &[u8], output: &mut [u8], passes: u32) -> u32 {
    output.copy_from_slice(input);
    let mut state: u32 = 0x9e37_79b9;
    for _ in 0..passes {
        for byte in output.iter_mut() {
            state = state.rotate_left(5).wrapping_add(u32::from(*byte)).wrapping_mul(0x85eb_ca6b);
            *byte ^= (state >> 24) as u8;
        }
    }
    crc32fast::hash(output)
}

/// Passes over a sample of `len` bytes that take `cpu` of CPU time on this machine; at least one.
pub fn passes_for(cpu: Nanos, len: usize) -> u32 {
    let input = vec![0x5a; len];
    let mut output = vec![0; len];
    const TRIAL: u32 = 4;
    // The fastest of several trials: interrupts and a busy sibling thread only ever add.
    let fastest = (0..6)
        .map(|_| {
            let start = clock::thread_cpu();
            std::hint::black_box(decode(&input, &mut output, TRIAL));
            clock::thread_cpu() - start
        })
        .min()
        .unwrap_or(Nanos::ZERO);
    passes(cpu, fastest, TRIAL)
}

fn passes(cpu: Nanos, trial: Nanos, trial_passes: u32) -> u32 {
    let per_pass = trial.0.max(1) as f64 / f64::from(trial_passes);
    // `as` saturates.
    ((cpu.0 as f64 / per_pass).round() as u32).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passes_follow_from_a_trial() {
        assert_eq!(passes(Nanos::from_millis(8), Nanos::from_millis(2), 4), 16);
        assert_eq!(passes(Nanos::ZERO, Nanos::from_millis(2), 4), 1);
        assert_eq!(passes(Nanos::from_millis(1), Nanos::ZERO, 4), 4_000_000);
    }

    #[test]
    fn every_pass_and_every_byte_counts() {
        let input = [7u8; 64];
        let mut other = input;
        other[63] = 8;
        let mut out = [0; 64];
        let one = decode(&input, &mut out, 1);
        assert_ne!(one, decode(&input, &mut out, 2));
        assert_ne!(one, decode(&other, &mut out, 1));
        assert_eq!(one, decode(&input, &mut out, 1));
    }
}
