//! Which program goes where, and what becomes of one that the kernel refuses.

use super::load::{Loaded, chain, is_refusal, not_permitted, os_error};
use super::{ProbeError, ProbeStatus};
use aya::programs::{BtfTracePoint, Program, ProgramError, RawTracePoint};
use aya::{Btf, Ebpf};

/// A program on a tracepoint.
struct Hook {
    /// Name of the tracepoint and of the program.
    name: &'static str,
    /// Typed program, if there is one; cheaper, and tried first.
    typed: Option<&'static str>,
    /// Untyped program.
    raw: &'static str,
    /// Whether tracing makes no sense without it.
    needed: bool,
}

/// The exit comes before the fork, and both before anything that keeps state: a thread that is followed must also be
/// forgotten.
const HOOKS: [Hook; 7] = [
    Hook { name: "sched_process_exit", typed: None, raw: "sched_process_exit", needed: true },
    Hook { name: "sched_process_fork", typed: None, raw: "sched_process_fork", needed: true },
    Hook { name: "sched_waking", typed: Some("sched_waking"), raw: "sched_waking_raw", needed: true },
    Hook { name: "sched_switch", typed: Some("sched_switch"), raw: "sched_switch_raw", needed: true },
    Hook { name: "sched_process_exec", typed: None, raw: "sched_process_exec", needed: false },
    Hook { name: "task_rename", typed: None, raw: "task_rename", needed: false },
    Hook { name: "mm_filemap_add_to_page_cache", typed: None, raw: "mm_filemap_add_to_page_cache", needed: false },
];

/// Attaches the scheduler and task programs, the typed ones only if asked to.
pub fn attach(loaded: &mut Loaded, typed: bool) -> Result<Vec<ProbeStatus>, ProbeError> {
    let Loaded { ebpf, btf, .. } = loaded;
    let mut status = Vec::new();
    for hook in &HOOKS {
        let failure = match attach_hook(ebpf, btf, hook, typed) {
            Ok(()) => None,
            Err(error) => {
                explain(hook.name, &error);
                if hook.needed {
                    return Err(refusal(hook.name, &error));
                }
                Some(short(&error))
            }
        };
        status.push(ProbeStatus { name: hook.name, failure });
    }
    Ok(status)
}

fn attach_hook(ebpf: &mut Ebpf, btf: &Btf, hook: &Hook, typed: bool) -> Result<(), ProgramError> {
    if let Some(name) = hook.typed.filter(|_| typed) {
        match attach_typed(ebpf, btf, name, hook.name) {
            Ok(()) => return Ok(()),
            // Without privilege the other kind would fail too, and hide why.
            Err(error) if os_error(&error).is_some_and(|e| e.raw_os_error() == Some(libc::EPERM)) => return Err(error),
            Err(error) => {
                explain(name, &error);
                log::info!("{}: falling back to the untyped program", hook.name);
            }
        }
    }
    let program: &mut RawTracePoint = program(ebpf, hook.raw)?.try_into()?;
    program.load()?;
    program.attach(hook.name)?;
    Ok(())
}

/// Loads and attaches a program that knows the tracepoint's types.
pub fn attach_typed(ebpf: &mut Ebpf, btf: &Btf, name: &str, tracepoint: &str) -> Result<(), ProgramError> {
    let program: &mut BtfTracePoint = program(ebpf, name)?.try_into()?;
    program.load(tracepoint, btf)?;
    program.attach()?;
    Ok(())
}

/// A program of the object.
pub fn program<'e>(ebpf: &'e mut Ebpf, name: &str) -> Result<&'e mut Program, ProgramError> {
    ebpf.program_mut(name).ok_or(ProgramError::NotLoaded)
}

/// The whole story, verifier's words included, for -v.
pub fn explain(program: &str, error: &ProgramError) {
    if let ProgramError::LoadError { io_error, verifier_log } = error {
        let text = verifier_log.to_string();
        let lines: Vec<_> = text.lines().collect();
        let last = lines[lines.len().saturating_sub(20)..].join("\n");
        log::info!("{program}: the verifier said ({io_error}):\n{last}");
    } else {
        log::info!("{program}: {}", chain(error));
    }
}

/// The error in a few words.
pub fn short(error: &ProgramError) -> String {
    match error {
        ProgramError::LoadError { io_error, .. } => io_error.to_string(),
        other => chain(other),
    }
}

fn refusal(program: &'static str, error: &ProgramError) -> ProbeError {
    match os_error(error) {
        // The verifier says EACCES too, but then it says why.
        Some(e) if is_refusal(&e) && !has_verifier_log(error) => not_permitted(e),
        _ => ProbeError::Refused { program, error: short(error) },
    }
}

fn has_verifier_log(error: &ProgramError) -> bool {
    matches!(error, ProgramError::LoadError { verifier_log, .. } if !verifier_log.to_string().trim().is_empty())
}
