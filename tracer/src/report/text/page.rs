//! Lines of a fixed width: paragraphs, bullets, bars and tables. Nothing that leaves here is wider than the page.

use super::super::escape::printable;
use anstyle::{AnsiColor, Style};
use comfy_table::{CellAlignment, ContentArrangement, Table, presets};
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// Narrowest page; what is asked for below that gets this.
pub(super) const MIN_WIDTH: usize = 40;
/// Space between two columns of a table, and in front of the first.
const GUTTER: usize = 2;
/// Least width to which a text column is cut before other columns are left out.
const MIN_FLEX: usize = 12;

/// How a line looks where colour is wanted.
#[derive(Clone, Copy)]
pub(super) enum Look {
    Plain,
    /// The answer.
    Answer,
    /// Title of a section.
    Title,
    /// Doubt and damage.
    Warning,
    /// Column titles and remarks.
    Quiet,
}

impl Look {
    fn style(self) -> Style {
        match self {
            Look::Plain => Style::new(),
            Look::Answer => Style::new().bold(),
            Look::Title => Style::new().bold().fg_color(Some(AnsiColor::Cyan.into())),
            Look::Warning => Style::new().fg_color(Some(AnsiColor::Yellow.into())),
            Look::Quiet => Style::new().dimmed(),
        }
    }
}

/// A column of a table.
pub(super) struct Column {
    title: &'static str,
    right: bool,
    /// The column is cut to what is left of the page.
    flex: bool,
    /// Columns with a rank are left out, highest first, where the page is too narrow.
    rank: u8,
}

/// A column of numbers.
pub(super) fn number(title: &'static str) -> Column {
    Column { title, right: true, flex: false, rank: 0 }
}

/// A column of text.
pub(super) fn text(title: &'static str) -> Column {
    Column { title, right: false, flex: false, rank: 0 }
}

impl Column {
    /// Cut it in the middle where the page is too narrow (one column of a table).
    pub(super) fn flexible(self) -> Column {
        Column { flex: true, ..self }
    }

    /// Leave it out where the page is too narrow; higher ranks go first.
    pub(super) fn optional(self, rank: u8) -> Column {
        Column { rank, ..self }
    }
}

/// The lines so far.
pub(super) struct Page {
    width: usize,
    lines: Vec<(Look, String)>,
}

impl Page {
    pub(super) fn new(width: usize) -> Page {
        Page { width: width.max(MIN_WIDTH), lines: Vec::new() }
    }

    /// An empty line, except at the top and after another one.
    pub(super) fn gap(&mut self) {
        if self.lines.last().is_some_and(|(_, l)| !l.is_empty()) {
            self.lines.push((Look::Plain, String::new()));
        }
    }

    /// Title of a section, with an empty line before it.
    pub(super) fn title(&mut self, text: &str) {
        self.gap();
        self.paragraph(Look::Title, text);
    }

    /// Text wrapped to the page.
    pub(super) fn paragraph(&mut self, look: Look, text: &str) {
        self.wrapped(look, text, "", "");
    }

    /// Text wrapped to the page behind a mark, such as `- `.
    pub(super) fn bullet(&mut self, look: Look, mark: &str, text: &str) {
        let rest = " ".repeat(mark.width());
        self.wrapped(look, text, mark, &rest);
    }

    fn wrapped(&mut self, look: Look, text: &str, first: &str, rest: &str) {
        let glued = glue_units(&printable(text));
        if glued.is_empty() {
            return;
        }
        let options = textwrap::Options::new(self.width)
            .initial_indent(first)
            .subsequent_indent(rest)
            .word_splitter(textwrap::WordSplitter::NoHyphenation);
        for line in textwrap::wrap(&glued, options) {
            self.line(look, &line.replace(NO_BREAK, " "));
        }
    }

    /// One line, cut to the page.
    fn line(&mut self, look: Look, text: &str) {
        let line = cut_end(text.trim_end(), self.width);
        self.lines.push((look, line));
    }

    /// A table, one line per row. Nothing for a table without rows.
    pub(super) fn table(&mut self, columns: &[Column], rows: &[Vec<String>]) {
        if rows.is_empty() {
            return;
        }
        let cell = |row: &[String], i: usize| row.get(i).map(|c| printable(c)).unwrap_or_default();
        let mut cells: Vec<Vec<String>> = (0..columns.len())
            .map(|i| std::iter::once(columns[i].title.to_owned()).chain(rows.iter().map(|r| cell(r, i))).collect())
            .collect();
        let widths: Vec<usize> =
            cells.iter().map(|column| column.iter().map(|c| c.width()).max().unwrap_or(0)).collect();
        let kept = fitting(columns, &widths, self.width);
        let fixed: usize = kept.iter().filter(|&&i| !columns[i].flex).map(|&i| widths[i]).sum();
        let room = self.width.saturating_sub(fixed + GUTTER * kept.len()).max(1);
        for &i in kept.iter().filter(|&&i| columns[i].flex) {
            for c in &mut cells[i] {
                *c = cut_middle(c, room);
            }
        }
        let mut table = Table::new();
        table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
        for row in 0..=rows.len() {
            table.add_row(kept.iter().map(|&i| cells[i].get(row).cloned().unwrap_or_default()));
        }
        for (&i, column) in kept.iter().zip(table.column_iter_mut()) {
            column.set_padding((GUTTER as u16, 0));
            column.set_cell_alignment(if columns[i].right { CellAlignment::Right } else { CellAlignment::Left });
        }
        let lines: Vec<String> = table.lines().collect();
        for (n, line) in lines.iter().enumerate() {
            self.line(if n == 0 { Look::Quiet } else { Look::Plain }, line);
        }
    }

    /// The whole text, each line closed by a newline.
    pub(super) fn finish(self, colour: bool) -> String {
        let mut out = String::new();
        for (look, line) in &self.lines {
            let style = look.style();
            if colour && !line.is_empty() && style != Style::new() {
                out.push_str(&format!("{}{line}{}", style.render(), style.render_reset()));
            } else {
                out.push_str(line);
            }
            out.push('\n');
        }
        out
    }
}

/// Which columns fit on the page, optional ones left out as needed.
fn fitting(columns: &[Column], widths: &[usize], width: usize) -> Vec<usize> {
    let mut kept: Vec<usize> = (0..columns.len()).collect();
    loop {
        let needed: usize =
            kept.iter().map(|&i| GUTTER + if columns[i].flex { widths[i].min(MIN_FLEX) } else { widths[i] }).sum();
        let drop = kept.iter().copied().filter(|&i| columns[i].rank > 0).max_by_key(|&i| columns[i].rank);
        match drop {
            Some(i) if needed > width => kept.retain(|&k| k != i),
            _ => return kept,
        }
    }
}

/// A bar of `cells` characters for a share between 0 and 1, in eighths of a character.
pub(super) fn bar(share: f64, cells: usize) -> String {
    // NaN becomes 0.
    let eighths = (share.clamp(0.0, 1.0) * cells as f64 * 8.0).round() as usize;
    let mut out = "█".repeat(eighths / 8);
    if let Some(part) = [None, Some('▏'), Some('▎'), Some('▍'), Some('▌'), Some('▋'), Some('▊'), Some('▉')][eighths % 8]
    {
        out.push(part);
    }
    out
}

const NO_BREAK: &str = "\u{a0}";
/// Words that belong to the number before them.
const UNITS: [&str; 14] = ["%", "s", "ms", "µs", "ns", "B", "KiB", "MiB", "GiB", "TiB", "points", "CPUs", "GPUs", "×"];

/// Ties units to their numbers, so that a line never ends between them.
fn glue_units(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for word in text.split(' ') {
        if !out.is_empty() {
            let bare = word.trim_end_matches(['.', ',', ';', ':', ')']);
            let after_number = out.ends_with(|c: char| c.is_ascii_digit());
            out.push_str(if after_number && UNITS.contains(&bare) { NO_BREAK } else { " " });
        }
        out.push_str(word);
    }
    out
}

/// The first characters of a text that fill at most `width` columns, with an ellipsis where something was cut.
pub(super) fn cut_end(text: &str, width: usize) -> String {
    if text.width() <= width {
        return text.to_owned();
    }
    let mut out = head(text, width.saturating_sub(1)).to_owned();
    out.push('…');
    out
}

/// Both ends of a text that together fill at most `width` columns: of a path, the end says most.
pub(super) fn cut_middle(text: &str, width: usize) -> String {
    if text.width() <= width {
        return text.to_owned();
    }
    let room = width.saturating_sub(1);
    format!("{}…{}", head(text, room / 3), tail(text, room - room / 3))
}

/// Longest start of at most `width` columns; widths of single characters never sum to less than the whole's.
fn head(text: &str, width: usize) -> &str {
    let mut used = 0;
    for (at, c) in text.char_indices() {
        used += c.width().unwrap_or(0);
        if used > width {
            return &text[..at];
        }
    }
    text
}

/// Longest end of at most `width` columns.
fn tail(text: &str, width: usize) -> &str {
    let mut used = 0;
    for (at, c) in text.char_indices().rev() {
        used += c.width().unwrap_or(0);
        if used > width {
            return &text[at + c.len_utf8()..];
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_are_proportional() {
        assert_eq!(bar(0.5, 10), "█████");
        assert_eq!(bar(0.25, 1), "▎");
        assert_eq!(bar(f64::NAN, 10), "");
        assert_eq!(bar(7.0, 3), "███");
        assert_eq!(bar(-1.0, 3), "");
    }

    #[test]
    fn long_paths_keep_their_end() {
        let path = "/data/imagenet/train/n01440764/n01440764_10026.JPEG";
        let cut = cut_middle(path, 20);
        assert_eq!(cut.width(), 20);
        assert!(cut.starts_with("/data/") && cut.ends_with("10026.JPEG"), "{cut}");
        assert_eq!(cut_middle("数据数据数据", 7).width(), 7);
        assert_eq!(cut_end("abc", 2), "a…");
    }

    #[test]
    fn numbers_stay_with_their_units() {
        let mut page = Page::new(40);
        page.paragraph(Look::Plain, "The thread was blocked for a total of 61 % of 60 s.");
        let text = page.finish(false);
        assert!(text.lines().all(|l| !l.ends_with("61") && !l.ends_with("60")), "{text}");
        assert!(text.contains("61 %"));
    }

    #[test]
    fn narrow_tables_lose_optional_columns_before_text_is_cut_away() {
        let columns = [text("file").flexible(), number("blocked"), number("something long").optional(1)];
        let rows = [vec!["/a/long/path/to/some/file/of/data.bin".into(), "12.3 s".into(), "1".into()]];
        let mut narrow = Page::new(40);
        narrow.table(&columns, &rows);
        let narrow = narrow.finish(false);
        assert!(narrow.contains("12.3 s") && narrow.contains("data.bin"), "{narrow}");
        let mut wide = Page::new(100);
        wide.table(&columns, &rows);
        assert!(wide.finish(false).contains("something long"));
        let tight = [text("file").flexible(), number("blocked"), number("a very long title of a column").optional(1)];
        let mut page = Page::new(40);
        page.table(&tight, &rows);
        assert!(!page.finish(false).contains("title of"));
    }

    #[test]
    fn colour_only_where_wanted() {
        let mut page = Page::new(40);
        page.paragraph(Look::Answer, "x\u{1b}[2J");
        assert_eq!(page.finish(true), "\u{1b}[1mx\\u{1b}[2J\u{1b}[0m\n");
    }
}
