//! The golden record: the requests of queries to devices, kept in files. It shows that a refactoring changes nothing.
//!
//! Owns the format of the files and comparisons with them. Must not know which queries are recorded.

use std::collections::{BTreeMap, VecDeque};
use std::fmt::Write as _;
use std::io;
use std::path::{Path, PathBuf};

use datafusion::error::DataFusionError;
use datafusion::prelude::SessionContext;
use sha2::{Digest, Sha256};
use warpjoin_device::Recording;

use crate::engine::Engine;
use crate::outcome::{Failure, no_panic};
use crate::text;

const HEAD: &str = "# query | devices | launches | host waits | peak bytes | kernels | answer";
/// Replaces a figure that differs from run to run, because DataFusion plans some queries in one of several ways.
const VARIES: &str = "-";
/// Position of the peak bytes among the figures.
const PEAK_BYTES: usize = 2;
/// Position of the answer.
const ANSWER: usize = 4;
/// Peak bytes may differ by one part in `PEAK_SHARE`, because inputs are uploaded concurrently.
const PEAK_SHARE: u64 = 100;
/// Most lines in a message.
const SHOWN_LINES_MAX: usize = 20;

/// The record of one query.
#[derive(Debug)]
pub struct GoldenLine {
    /// Name of the query in its file.
    pub query: String,
    /// Number of devices.
    pub devices: usize,
    /// The requests to the devices.
    pub recording: Recording,
    /// Digest of the answer, or the kind of its error; `-` if another test compares the answer.
    pub answer: String,
}

/// Launches, host waits, peak bytes, kernels, answer.
type Figures = [String; 5];

impl GoldenLine {
    /// Runs and records `sql`; `None` if the engine's devices do not record.
    pub async fn of(engine: &Engine, context: &SessionContext, query: String, sql: &str) -> Option<Self> {
        engine.take_recording();
        let answer = match no_panic(answer_lines(context, sql)).await {
            Ok(rows) => digest(&rows.join("\n")),
            Err(error) => format!("{:?}", Failure::new(&error).kind),
        };
        Some(Self { query, devices: engine.devices(), recording: engine.take_recording()?, answer })
    }

    /// The name of a query in a file. It does not depend on other queries of the file.
    pub fn name_of(file: &Path, sql: &str) -> String {
        let stem = file.file_stem().unwrap_or_default().to_string_lossy();
        format!("{stem} {}", digest(sql))
    }

    fn name(&self) -> String {
        format!("{} | {}", self.query, self.devices)
    }

    fn figures(&self) -> Figures {
        let Recording { launches, host_waits, peak_bytes, .. } = &self.recording;
        let kernels = self.recording.digest_of_kernels();
        [launches.to_string(), host_waits.to_string(), peak_bytes.to_string(), kernels, self.answer.clone()]
    }
}

/// One file of the record.
#[derive(Debug)]
pub struct Golden {
    path: PathBuf,
    /// The recorded lines, in the order of the file.
    known: Vec<(String, Figures)>,
}

impl Golden {
    /// Reads the file. A missing file counts as empty.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read.
    pub fn open(path: &Path) -> io::Result<Self> {
        let text = match std::fs::read_to_string(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
            text => text?,
        };
        Ok(Self { path: path.to_path_buf(), known: text.lines().skip(1).filter_map(parse).collect() })
    }

    /// Replaces the file by `lines`. Figures marked as varying keep the mark, and peak bytes that are nearly equal stay.
    ///
    /// # Errors
    /// Returns an error if the file cannot be written.
    pub fn write(&self, lines: &[GoldenLine]) -> io::Result<()> {
        self.write_where(lines, |old, _| old == VARIES)
    }

    /// Marks figures that differ between `lines` and the file as varying.
    ///
    /// # Errors
    /// Returns an error if the file cannot be written.
    pub fn mark_varying(&self, lines: &[GoldenLine]) -> io::Result<()> {
        self.write_where(lines, |old, new| old != new)
    }

    fn write_where(&self, lines: &[GoldenLine], varies: impl Fn(&str, &str) -> bool) -> io::Result<()> {
        let mut text = format!("{HEAD}\n");
        for (line, old) in lines.iter().zip(self.matching(lines)) {
            let mut figures = line.figures();
            for (at, (new, old)) in figures.iter_mut().zip(old.into_iter().flatten()).enumerate() {
                if at == PEAK_BYTES && is_near(old, new) {
                    *new = old.clone();
                } else if varies(old, new) {
                    *new = VARIES.into();
                }
            }
            // Writing to a string can't fail.
            let _ = writeln!(text, "{} | {}", line.name(), figures.join(" | "));
        }
        if let Some(folder) = self.path.parent() {
            std::fs::create_dir_all(folder)?;
        }
        std::fs::write(&self.path, text)
    }

    /// The recorded figures of each line. Lines with equal names match in their order.
    fn matching(&self, lines: &[GoldenLine]) -> Vec<Option<&Figures>> {
        let mut known: BTreeMap<&str, VecDeque<&Figures>> = BTreeMap::new();
        for (name, figures) in &self.known {
            known.entry(name).or_default().push_back(figures);
        }
        lines.iter().map(|line| known.get_mut(line.name().as_str())?.pop_front()).collect()
    }

    /// Positions of the lines that differ from the record.
    fn differing(&self, lines: &[GoldenLine]) -> Vec<usize> {
        let matching = self.matching(lines);
        let differs = |at: &usize| !matching[*at].is_some_and(|old| is_same(old, &lines[*at].figures()));
        (0..lines.len()).filter(differs).collect()
    }

    /// Positions of the lines that differ from the record in anything but their answer.
    pub fn planned_differently(&self, lines: &[GoldenLine]) -> Vec<usize> {
        let matching = self.matching(lines);
        let has_answer = |at: &usize| matching[*at].is_some_and(|old| old[ANSWER] == lines[*at].answer);
        self.differing(lines).into_iter().filter(has_answer).collect()
    }

    /// Describes how `lines` differ from the record; `None` if they do not.
    pub fn difference(&self, lines: &[GoldenLine]) -> Option<String> {
        let matching = self.matching(lines);
        let gone = self.known.len() - matching.iter().flatten().count();
        let mut differences = vec![];
        for at in self.differing(lines) {
            let (line, old) = (&lines[at], matching[at]);
            let old = old.map_or_else(|| "nothing".to_string(), |old| old.join(" | "));
            differences.push(format!("{}\n  was {old}\n  is  {}", line.name(), line.figures().join(" | ")));
        }
        if gone > 0 {
            differences.push(format!("{gone} lines of the record have no query"));
        }
        let first = differences.iter().take(SHOWN_LINES_MAX).map(String::as_str).collect::<Vec<_>>().join("\n");
        let (count, path) = (differences.len(), self.path.display());
        (count > 0).then(|| format!("{count} of {} lines differ from {path}\n{HEAD}\n{first}", lines.len()))
    }
}

/// Whether figures are those of the record.
fn is_same(old: &Figures, new: &Figures) -> bool {
    let mut both = old.iter().zip(new).enumerate();
    both.all(|(at, (old, new))| old == VARIES || old == new || at == PEAK_BYTES && is_near(old, new))
}

fn is_near(old: &str, new: &str) -> bool {
    let (Ok(old), Ok(new)) = (old.parse::<u64>(), new.parse::<u64>()) else { return false };
    old.abs_diff(new) <= old.max(new) / PEAK_SHARE
}

/// Parses a line of the file into name and figures.
fn parse(line: &str) -> Option<(String, Figures)> {
    let parts: [&str; 7] = line.split(" | ").collect::<Vec<_>>().try_into().ok()?;
    let [query, devices, figures @ ..] = parts;
    Some((format!("{query} | {devices}"), figures.map(String::from)))
}

/// The sorted rows of an answer.
async fn answer_lines(context: &SessionContext, sql: &str) -> Result<Vec<String>, DataFusionError> {
    let mut lines = text::lines(&context.sql(sql).await?.collect().await?)?;
    lines.sort_unstable();
    Ok(lines)
}

fn digest(text: &str) -> String {
    Sha256::digest(text.as_bytes()).iter().take(4).map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(launches: &[(&str, usize)]) -> Vec<GoldenLine> {
        let line = |&(query, devices): &(&str, usize)| GoldenLine {
            query: query.into(),
            devices,
            recording: Recording::default(),
            answer: "a".into(),
        };
        launches.iter().map(line).collect()
    }

    #[test]
    fn differences_from_the_written_record_are_found() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("golden/some.txt");
        let open = || Golden::open(&path).unwrap();
        let queries = [("a", 1), ("a", 1), ("b", 2)];
        let changed = |answer: &str| {
            let mut changed = lines(&queries);
            changed[1].answer = answer.into();
            changed
        };
        assert!(open().difference(&lines(&queries)).unwrap().starts_with("3 of 3 lines differ"));
        open().write(&lines(&queries)).unwrap();
        assert_eq!(open().difference(&lines(&queries)), None);
        assert!(open().difference(&changed("b")).unwrap().starts_with("1 of 3 lines differ"));
        assert!(open().difference(&lines(&queries[1..])).unwrap().contains("1 lines of the record have no query"));
        assert!(
            open().difference(&lines(&[queries.as_slice(), &[("c", 1)]].concat())).unwrap().contains("was nothing")
        );

        open().mark_varying(&changed("b")).unwrap();
        assert_eq!(open().difference(&changed("c")), None);
        open().write(&changed("d")).unwrap();
        assert_eq!(open().difference(&lines(&queries)), None, "it still varies");
        let mut others = changed("d");
        others[0].answer = "d".into();
        assert!(open().difference(&others).is_some());
    }
}
