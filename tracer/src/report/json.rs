//! The report as JSON, schema `gpustall.report/1` (docs/report.md).

use super::Report;

/// One JSON object, indented, keys in the order of the model, with a newline at its end.
pub fn to_json(report: &Report) -> String {
    let mut text = serde_json::to_string_pretty(report).unwrap_or_else(|e| {
        // The model has only string keys, so this is out of reach; a program that reads it still gets an object.
        serde_json::json!({ "schema": super::SCHEMA, "error": e.to_string() }).to_string()
    });
    text.push('\n');
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::fixtures;

    /// The block between ```json and ``` that holds a whole report.
    fn documented_example() -> &'static str {
        let doc = include_str!("../../../docs/report.md");
        let start = doc.find("```json\n").expect("docs/report.md has a JSON example") + "```json\n".len();
        let len = doc[start..].find("\n```").expect("the example ends");
        &doc[start..start + len]
    }

    #[test]
    fn the_documented_example_is_a_whole_report() {
        let example: Report = serde_json::from_str(documented_example()).expect("the example fits the model");
        assert_eq!(example.schema, crate::report::SCHEMA);
        // Nothing in it is left to a default, and nothing in it is unknown to the model.
        let documented: serde_json::Value = serde_json::from_str(documented_example()).expect("valid JSON");
        let written: serde_json::Value = serde_json::from_str(&to_json(&example)).expect("valid JSON");
        assert_eq!(documented, written);
    }

    #[test]
    fn every_documented_share_sums_to_one() {
        let example: Report = serde_json::from_str(documented_example()).expect("the example fits the model");
        for causes in example.gpus.iter().map(|g| &g.causes).chain([&example.causes]) {
            let sum: f64 = causes.iter().map(|c| c.share).sum();
            assert!((sum - 1.0).abs() < 1e-6, "shares sum to {sum}");
        }
        for gpu in &example.gpus {
            let explained: f64 = gpu.causes.iter().map(|c| c.seconds).sum();
            assert!((explained - gpu.idle_s).abs() < 1e-6);
            assert!((gpu.busy_s + gpu.idle_s - (gpu.active_to_s - gpu.active_from_s)).abs() < 1e-6);
        }
    }

    #[test]
    fn json_comes_back_as_the_same_report() {
        let report = fixtures::disk_bound();
        let text = to_json(&report);
        assert_eq!(serde_json::from_str::<Report>(&text).expect("reads back"), report);
        assert!(text.starts_with("{\n  \"schema\": \"gpustall.report/1\""));
        assert_eq!(text, to_json(&report.clone()));
    }
}
