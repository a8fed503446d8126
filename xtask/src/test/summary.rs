//! Adding up the result lines of many test executables.

use anyhow::{Result, bail};

/// Totals so far.
#[derive(Debug, Default)]
pub struct Summary {
    passed: u64,
    failed: u64,
    ignored: u64,
    /// Bytes of a line that has not ended.
    partial: Vec<u8>,
    /// Whether the executable that runs now has printed its result, and failures in it.
    current: Option<u64>,
    /// Executables that failed.
    culprits: Vec<String>,
}

impl Summary {
    /// Takes in output as it comes, in pieces of any size.
    pub fn see(&mut self, bytes: &[u8]) {
        self.partial.extend_from_slice(bytes);
        while let Some(end) = self.partial.iter().position(|&byte| byte == b'\n') {
            let line: Vec<u8> = self.partial.drain(..=end).collect();
            if let Some((passed, failed, ignored)) = result_line(&String::from_utf8_lossy(&line)) {
                self.passed += passed;
                self.failed += failed;
                self.ignored += ignored;
                *self.current.get_or_insert(0) += failed;
            }
        }
    }

    /// An executable ended. One that fails without a counted failure (it crashed, say) counts as one.
    pub fn ended(&mut self, name: &str, success: bool) {
        self.see(b"\n");
        let counted = self.current.take();
        if !success {
            self.culprits.push(name.to_owned());
            if counted.unwrap_or(0) == 0 {
                self.failed += 1;
            }
        }
    }

    /// Prints the totals, the closing line last of all; false if anything failed or nothing ran.
    pub fn close(&self) -> bool {
        let outcome = self.outcome();
        println!();
        if let Err(error) = &outcome {
            println!("{error}");
        }
        if self.ignored > 0 {
            println!("{} ignored", self.ignored);
        }
        println!("{} passed, {} failed", self.passed, self.failed);
        outcome.is_ok()
    }

    fn outcome(&self) -> Result<()> {
        if !self.culprits.is_empty() || self.failed > 0 {
            bail!("failed: {}", self.culprits.join(", "));
        }
        if self.passed == 0 {
            bail!("no test ran");
        }
        Ok(())
    }
}

/// Passed, failed and ignored tests of a line like `test result: ok. 3 passed; 0 failed; 1 ignored; …`.
fn result_line(line: &str) -> Option<(u64, u64, u64)> {
    // A test that writes to standard output without a newline may stand before it on the line.
    let (_, counts) = line.split_once("test result: ")?;
    let count = |what: &str| {
        counts.split([';', '.']).find_map(|part| part.trim().strip_suffix(what)?.trim().parse::<u64>().ok())
    };
    Some((count("passed")?, count("failed")?, count("ignored")?))
}

#[cfg(test)]
mod tests {
    use super::*;

    const OK: &[u8] = b"test a ... ok\n\ntest result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.01s\n";
    const BAD: &[u8] =
        b"test result: FAILED. 2 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out; finished in 1.20s\n";

    #[test]
    fn results_add_up_whatever_the_pieces_are() {
        let mut whole = Summary::default();
        whole.see(OK);
        whole.ended("a", true);
        let mut pieces = Summary::default();
        for byte in OK {
            pieces.see(&[*byte]);
        }
        pieces.ended("a", true);
        for summary in [&whole, &pieces] {
            assert_eq!((summary.passed, summary.failed, summary.ignored), (3, 0, 1));
            assert!(summary.outcome().is_ok());
        }
    }

    #[test]
    fn a_failure_is_counted_once() {
        let mut summary = Summary::default();
        summary.see(OK);
        summary.ended("a", true);
        summary.see(BAD);
        summary.ended("b", false);
        assert_eq!((summary.passed, summary.failed), (5, 2));
        assert_eq!(summary.outcome().unwrap_err().to_string(), "failed: b");
    }

    #[test]
    fn a_crash_without_a_result_line_is_a_failure() {
        let mut summary = Summary::default();
        summary.see(OK);
        summary.ended("a", true);
        summary.see(b"test dies ... ");
        summary.ended("b", false);
        assert_eq!((summary.passed, summary.failed), (3, 1));
        assert!(summary.outcome().is_err());
    }

    #[test]
    fn nothing_run_is_no_success() {
        let mut summary = Summary::default();
        summary.see(b"test result: ok. 0 passed; 0 failed; 0 ignored; 0 measured; 9 filtered out; finished in 0.00s\n");
        summary.ended("a", true);
        assert_eq!(summary.outcome().unwrap_err().to_string(), "no test ran");
    }
}
