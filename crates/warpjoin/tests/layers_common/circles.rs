//! Import circles: files that reach each other by imports.

use super::Imports;

/// Largest first: the files of each circle of two or more.
pub(crate) fn circles(imports: &Imports) -> Vec<Vec<usize>> {
    let reached: Vec<Vec<bool>> = (0..imports.files.len()).map(|file| reached_from(imports, file)).collect();
    let mut circles: Vec<Vec<usize>> = vec![];
    let mut is_placed = vec![false; imports.files.len()];
    for file in 0..imports.files.len() {
        if is_placed[file] {
            continue;
        }
        let circle: Vec<usize> =
            (0..imports.files.len()).filter(|&other| reached[file][other] && reached[other][file]).collect();
        circle.iter().for_each(|&file| is_placed[file] = true);
        if circle.len() > 1 {
            circles.push(circle);
        }
    }
    circles.sort_by_key(|circle| std::cmp::Reverse(circle.len()));
    circles
}

/// Files that a file reaches by imports.
fn reached_from(imports: &Imports, file: usize) -> Vec<bool> {
    let mut is_reached = vec![false; imports.files.len()];
    let mut open = vec![file];
    while let Some(file) = open.pop() {
        for &next in imports.arrows[file].keys() {
            if !std::mem::replace(&mut is_reached[next], true) {
                open.push(next);
            }
        }
    }
    is_reached
}
