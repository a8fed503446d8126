//! The report as text for people: the answer first, then what it rests on, then the rest of the facts.

mod answer;
mod causes;
mod cpu;
mod ending;
mod gaps;
mod page;
mod storage;
mod threads;

use super::Report;
use page::Page;

/// The report as lines of at most `width` columns (40 at least), about 80 to 100 of them for a usual recording; with
/// `colour`, titles and warnings carry ANSI styles. Whatever the report holds, no control character of it gets through.
pub fn render(report: &Report, width: usize, colour: bool) -> String {
    let mut page = Page::new(width);
    answer::write(&mut page, report);
    causes::write(&mut page, report);
    gaps::write(&mut page, report);
    threads::write(&mut page, report);
    storage::write(&mut page, report);
    cpu::write(&mut page, report);
    ending::write(&mut page, report);
    page.finish(colour)
}

/// Whether a GPU comes with evidence of when it was busy.
fn has_evidence(gpu: &super::GpuReport) -> bool {
    gpu.source != "none"
}

/// Time that the shares of a GPU are shares of: from its first to its last busy moment.
fn span_s(gpu: &super::GpuReport) -> f64 {
    gpu.busy_s + gpu.idle_s
}

/// GPUs with evidence that what is said of the job as a whole is about: those of the job; all, if none is.
fn of_job(report: &Report) -> Vec<&super::GpuReport> {
    let seen = || report.gpus.iter().filter(|g| has_evidence(g));
    let any = seen().any(|g| g.of_job);
    seen().filter(|g| g.of_job || !any).collect()
}

#[cfg(test)]
mod tests;
