//! `heap check`: what a heap holds, and what is wrong in it.

use crate::arguments::heap::{Check, HeapCommand};
use crate::failure::{Done, Failure};
use crate::output::{answer, columns, count, printable};
use crate::units::format_size;
use commonhold::{Heap, HeapReport, Host};
use serde::Serialize;

/// Does what the command says.
pub fn run(host: &Host, command: &HeapCommand) -> Done {
    match command {
        HeapCommand::Check(arguments) => check(host, arguments),
    }
}

/// A heap, as it is said.
#[derive(Debug, Serialize)]
struct Said {
    name: String,
    whole: bool,
    problems: Vec<Wrong>,
    blocks: u64,
    bytes: u64,
    pages: u64,
    chunks: u64,
    chunks_in_all: u64,
    chunk_bytes: u64,
    arenas: u64,
    ended_arenas: u64,
    types: Vec<String>,
    roots: Vec<Root>,
}

#[derive(Debug, Serialize)]
struct Wrong {
    at: u64,
    what: &'static str,
}

#[derive(Debug, Serialize)]
struct Root {
    name: String,
    value: u64,
}

impl Said {
    fn of(name: &str, report: HeapReport) -> Said {
        Said {
            name: name.to_owned(),
            whole: report.problems.is_empty(),
            problems: report.problems.iter().map(|one| Wrong { at: one.at, what: one.what }).collect(),
            blocks: report.blocks,
            bytes: report.bytes,
            pages: report.pages,
            chunks: report.chunks,
            chunks_in_all: report.chunks_in_all,
            chunk_bytes: report.chunk_bytes,
            arenas: report.arenas,
            ended_arenas: report.ended,
            types: report.types.into_iter().map(|one| one.name).collect(),
            roots: report.roots.into_iter().map(|one| Root { name: one.name, value: one.value }).collect(),
        }
    }

    fn for_people(&self) -> String {
        let state = match self.problems.len() {
            0 => "whole".to_owned(),
            many => format!("DAMAGED: {} found", count(many as u64, "problem")),
        };
        let mut rows = vec![
            vec!["heap".to_owned(), format!("{}, {state}", printable(&self.name, false))],
            vec!["blocks".to_owned(), format!("{}, {}", self.blocks, format_size(self.bytes))],
            vec!["pages".to_owned(), format!("{}, {}", self.pages, format_size(self.pages * 4096))],
            vec![
                "chunks".to_owned(),
                format!("{} of {}, {} each", self.chunks, self.chunks_in_all, format_size(self.chunk_bytes)),
            ],
            vec![
                "arenas".to_owned(),
                format!("{}, and {} of processes that ended", self.arenas, self.ended_arenas),
            ],
        ];
        rows.extend(self.types.iter().map(|text| vec!["type".to_owned(), printable(text, false)]));
        let root = |root: &Root| {
            vec!["root".to_owned(), format!("{}: {}", printable(&root.name, false), root.value)]
        };
        rows.extend(self.roots.iter().map(root));
        let wrong = |one: &Wrong| vec!["problem".to_owned(), format!("byte {}: {}", one.at, one.what)];
        rows.extend(self.problems.iter().map(wrong));
        columns(None, rows, &[])
    }
}

fn check(host: &Host, arguments: &Check) -> Done {
    let report = Heap::open(host, &arguments.name)?.check()?;
    let said = Said::of(&arguments.name, report);
    answer(arguments.form.json, &said, Said::for_people)?;
    if said.whole { Ok(()) } else { Err(Failure::Answered) }
}
