//! Text with indented lines.

/// A text, and how many blocks are open.
pub(super) struct Text {
    pub text: String,
    depth: usize,
}

impl Text {
    /// The body of a function that begins with this text.
    pub(super) fn new(text: String) -> Self {
        Self { text, depth: 1 }
    }

    /// Adds a line that `write` writes.
    pub(super) fn line(&mut self, write: impl FnOnce(&mut String)) {
        for _ in 0..self.depth {
            self.text.push_str("    ");
        }
        write(&mut self.text);
        self.text.push('\n');
    }

    pub(super) fn push(&mut self, line: &str) {
        self.line(|text| text.push_str(line));
    }

    /// Opens a block.
    pub(super) fn open(&mut self, line: &str) {
        self.line(|text| {
            text.push_str(line);
            text.push_str(" {");
        });
        self.depth += 1;
    }

    /// Adds finished lines that open a block.
    pub(super) fn open_with(&mut self, lines: &str) {
        self.text.push_str(lines);
        self.depth += 1;
    }

    /// Closes a block.
    pub(super) fn close(&mut self, line: &str) {
        self.depth -= 1;
        self.push(line);
    }
}
