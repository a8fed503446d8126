//! How much could be gained at most if a cause went away.

use crate::units::Nanos;

/// What a training run of some length consists of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Run {
    /// Its length: busy and idle time of the GPU.
    pub span: Nanos,
    /// Time in which the GPU was busy.
    pub busy: Nanos,
    /// Idle time that threads of the process that feeds the GPU account for by causes that would stay. It cannot be hidden
    /// behind the GPU's work, since it gives the GPU its work. (What workers do can: they work ahead.)
    pub serial: Nanos,
    /// What workers would still have to do, each for itself: their time on the CPU, on the run queue and in storage waits by
    /// causes that would stay, on average over the workers. Zero if their number is to grow.
    pub each_worker: Nanos,
}

impl Run {
    /// The shortest that this run could become without the cause: no shorter than the work of the GPU and of its feeder, and
    /// no shorter than what each worker has to do.
    pub fn shortest(&self) -> Nanos {
        (self.busy + self.serial).max(self.each_worker).min(self.span)
    }

    /// How many times faster it could be at most; `None` if it has no length.
    pub fn speedup(&self) -> Option<f64> {
        let shortest = self.shortest();
        (shortest > Nanos::ZERO).then(|| self.span.secs() / shortest.secs())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn s(n: u64) -> Nanos {
        Nanos::from_millis(1000 * n)
    }

    #[test]
    fn what_the_gpu_and_its_feeder_do_stays() {
        let run = Run { span: s(100), busy: s(30), serial: s(20), each_worker: s(0) };
        assert_eq!(run.shortest(), s(50));
        assert_eq!(run.speedup(), Some(2.0));
    }

    #[test]
    fn what_each_worker_has_to_do_stays_too() {
        // Workers read for 60 s and decode for 35 s: with a disk of infinite speed they still decode.
        let run = Run { span: s(100), busy: s(10), serial: s(0), each_worker: s(35) };
        assert_eq!(run.shortest(), s(35));
    }

    #[test]
    fn no_run_gets_longer_and_an_empty_one_has_no_bound() {
        assert_eq!(Run { span: s(10), busy: s(8), serial: s(1), each_worker: s(60) }.speedup(), Some(1.0));
        assert_eq!(Run::default().speedup(), None);
    }
}
