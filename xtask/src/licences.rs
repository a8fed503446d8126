//! Checks that every dependency's licence lets gpustall be given away under MIT or Apache-2.0.

use anyhow::{Context, Result, bail};
use serde::Deserialize;
use spdx::{Expression, ParseMode};

use crate::shell;

/// Licences that ask for no more than a notice.
const ALLOWED: [&str; 9] =
    ["MIT", "Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "ISC", "Zlib", "Unicode-3.0", "Unlicense", "CC0-1.0"];

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
}

#[derive(Deserialize)]
struct Package {
    name: String,
    version: String,
    license: Option<String>,
}

/// Runs `cargo xtask licences`.
pub fn run() -> Result<()> {
    let text = shell::output(shell::cargo().args(["metadata", "--locked", "--all-features", "--format-version=1"]))?;
    let metadata: Metadata = serde_json::from_str(&text).context("cannot parse what `cargo metadata` printed")?;
    let offenders: Vec<String> = metadata
        .packages
        .iter()
        .filter_map(|package| {
            let reason = refused(package.license.as_deref())?;
            Some(format!("  {} {}: {reason}", package.name, package.version))
        })
        .collect();
    if !offenders.is_empty() {
        bail!("these dependencies do not fit MIT OR Apache-2.0:\n{}", offenders.join("\n"));
    }
    println!("{} packages, all under licences that fit MIT OR Apache-2.0", metadata.packages.len());
    Ok(())
}

/// Why a licence cannot be accepted; `None` if it can.
fn refused(licence: Option<&str>) -> Option<String> {
    let Some(licence) = licence else { return Some("its manifest names no licence".to_owned()) };
    // Old manifests write "MIT/Apache-2.0".
    match Expression::parse_mode(licence, ParseMode::LAX) {
        Err(error) => Some(format!("`{licence}` is no SPDX expression ({})", error.reason)),
        Ok(expression) => {
            // An exception only ever adds permissions to the licence before it.
            let accepted =
                |requirement: &spdx::LicenseReq| requirement.license.id().is_some_and(|id| ALLOWED.contains(&id.name));
            (!expression.evaluate(accepted)).then(|| format!("`{licence}`"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::refused;

    #[test]
    fn one_acceptable_side_of_an_or_is_enough_and_both_sides_of_an_and_are_needed() {
        assert_eq!(refused(Some("GPL-3.0-only OR MIT")), None);
        assert_eq!(refused(Some("Apache-2.0 WITH LLVM-exception")), None);
        assert_eq!(refused(Some("MIT/Apache-2.0")), None);
        assert_eq!(refused(Some("(MIT OR Apache-2.0) AND Unicode-3.0")), None);
        assert!(refused(Some("MIT AND GPL-2.0-only")).is_some());
    }

    #[test]
    fn copyleft_nonsense_and_silence_are_refused() {
        assert!(refused(Some("LGPL-3.0-only")).is_some());
        assert!(refused(Some("do what you like")).is_some());
        assert!(refused(None).is_some());
    }
}
