//! Splits a script into statements: DataFusion's, and those that only the shell knows.

use datafusion::common::{DataFusionError, TableReference};
use datafusion::sql::parser::{DFParser, DFParserBuilder, Statement};
use datafusion::sql::sqlparser::ast::Statement as SqlStatement;
use datafusion::sql::sqlparser::dialect::GenericDialect;
use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::parser::Parser;
use datafusion::sql::sqlparser::tokenizer::{Token, Tokenizer};

use crate::error::{CliError, Result};

/// A statement of the shell.
pub(super) enum Command {
    /// A statement that DataFusion runs.
    Sql(Box<Statement>),
    /// `CACHE TABLE name`
    Cache(TableReference),
    /// `UNCACHE TABLE [IF EXISTS] name`
    Uncache { table: TableReference, if_exists: bool },
    /// `SHOW QUERIES`
    Queries,
    /// `KILL id`
    Kill(u64),
}

/// A statement, and where it begins.
pub(super) struct Placed {
    /// Counted from 1.
    pub(super) line: u64,
    pub(super) command: Command,
}

/// All statements of a script; none of them runs if one is malformed.
pub(super) fn parse(script: &str) -> Result<Vec<Placed>> {
    let mut parser = DFParserBuilder::new(script).build()?;
    let mut commands = vec![];
    loop {
        while parser.parser.consume_token(&Token::SemiColon) {}
        let first = parser.parser.peek_token();
        if first == Token::EOF {
            return Ok(commands);
        }
        commands.push(Placed { line: first.span.start.line, command: command(&mut parser)? });
        let next = parser.parser.peek_token();
        if next != Token::EOF && next != Token::SemiColon {
            let error = parser.parser.expected::<()>("end of statement", next);
            error.map_err(DataFusionError::from)?;
        }
    }
}

/// Whether the text ends with a whole statement and its semicolon, whatever comments follow. Text that no statement can
/// begin with counts as ended: the parser says what is wrong with it.
pub(super) fn is_ended(text: &str) -> bool {
    match Tokenizer::new(&GenericDialect, text).tokenize() {
        Ok(tokens) => tokens
            .iter()
            .rfind(|token| !matches!(token, Token::Whitespace(_)))
            .is_some_and(|last| *last == Token::SemiColon),
        Err(error) => {
            let message = error.message.to_ascii_lowercase();
            !message.contains("unterminated") && !message.contains("eof")
        }
    }
}

fn command(parser: &mut DFParser<'_>) -> Result<Command> {
    let sql = &mut parser.parser;
    if sql.parse_keywords(&[Keyword::CACHE, Keyword::TABLE]) {
        return Ok(Command::Cache(table(parser)?));
    }
    if sql.parse_keywords(&[Keyword::UNCACHE, Keyword::TABLE]) {
        let if_exists = sql.parse_keywords(&[Keyword::IF, Keyword::EXISTS]);
        return Ok(Command::Uncache { table: table(parser)?, if_exists });
    }
    if sql.parse_keyword(Keyword::KILL) {
        return Ok(Command::Kill(sql.parse_literal_uint().map_err(DataFusionError::from)?));
    }
    if is_show_queries(sql) {
        sql.advance_token();
        sql.advance_token();
        return Ok(Command::Queries);
    }
    let statement = parser.parse_statement()?;
    match &statement {
        Statement::Statement(cache) if matches!(**cache, SqlStatement::Cache { .. }) => {
            Err(CliError::Usage("CACHE TABLE takes the name of a table, without options or a query".into()))
        }
        _ => Ok(Command::Sql(Box::new(statement))),
    }
}

/// Whether the next tokens are `SHOW QUERIES`; other statements of SHOW are DataFusion's.
fn is_show_queries(sql: &Parser<'_>) -> bool {
    let is = |at: usize, text: &str| match sql.peek_nth_token(at).token {
        Token::Word(word) => word.quote_style.is_none() && word.value.eq_ignore_ascii_case(text),
        _ => false,
    };
    is(0, "show") && is(1, "queries")
}

fn table(parser: &mut DFParser<'_>) -> Result<TableReference> {
    let name = parser.parser.parse_object_name(false).map_err(DataFusionError::from)?;
    Ok(TableReference::parse_str(&name.to_string()))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    fn words(script: &str) -> Vec<String> {
        let word = |placed: Placed| match placed.command {
            Command::Sql(statement) => statement.to_string(),
            Command::Cache(table) => format!("cache {table}"),
            Command::Uncache { table, if_exists } => format!("uncache {table} {if_exists}"),
            Command::Queries => "queries".to_string(),
            Command::Kill(id) => format!("kill {id}"),
        };
        parse(script).unwrap().into_iter().map(word).collect()
    }

    #[test]
    fn scripts_are_split() {
        assert_eq!(words(" ;; -- nothing\n"), Vec::<String>::new());
        assert_eq!(words("SELECT 1; cache table T ;SELECT ';'"), ["SELECT 1", "cache t", "SELECT ';'"]);
        let script = "CACHE TABLE a.b.\"C d\"; uncache table x;; UNCACHE TABLE IF EXISTS y";
        assert_eq!(words(script), ["cache a.b.C d", "uncache x false", "uncache y true"]);
        let script = "show Queries; KILL 12; SHOW queries_max; show tables";
        assert_eq!(words(script), ["queries", "kill 12", "SHOW queries_max", "SHOW TABLES"]);
    }

    #[test]
    fn statements_know_their_lines() {
        let placed = parse("-- a comment\nSELECT\n1; SHOW QUERIES;\n\n SELECT 2").unwrap();
        assert_eq!(placed.iter().map(|placed| placed.line).collect::<Vec<_>>(), [2, 3, 5]);
    }

    #[test]
    fn statements_end_at_their_semicolon() {
        for ended in [
            "select 1;",
            "select ';';",
            "select 'it''s';\n",
            "select 1; -- it's done",
            "select 1; /* ' */",
            "select ?é;",
        ] {
            assert!(is_ended(ended), "{ended}");
        }
        for open in ["select 1", "select ';", "select 1\nfrom", "select 1 -- ;", "select 1 /* ;", "select \"a;", ""] {
            assert!(!is_ended(open), "{open}");
        }
    }

    #[test]
    fn malformed_scripts_are_errors() {
        for script in [
            "CACHE TABLE",
            "CACHE TABLE a b",
            "UNCACHE a",
            "CACHE LAZY TABLE a",
            "KILL",
            "KILL a",
            "KILL -1",
            "KILL 1 2",
            "SHOW QUERIES x",
            "SELECT 1 SELECT 2",
            "SELECT 1; selec 2",
        ] {
            assert!(parse(script).is_err(), "{script}");
        }
    }
}
