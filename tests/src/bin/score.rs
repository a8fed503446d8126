//! Prints the score of a run: `score BUSY_FILE TRUTH_LOG`.
use anyhow::bail;
use gpustall_tests::truth::score_files;

fn main() -> anyhow::Result<()> {
    let args: Vec<_> = std::env::args_os().skip(1).collect();
    let [busy, truth] = args.as_slice() else { bail!("usage: score BUSY_FILE TRUTH_LOG") };
    let score = score_files(busy.as_ref(), truth.as_ref())?;
    println!("busy {:.1} %, {} gaps, {}", 100.0 * score.busy_share(), score.gaps, score.idle.summary());
    Ok(())
}
