// SPDX-License-Identifier: Apache-2.0
// Modules from files: what is read and compared before any code of theirs runs.
//
// A file is taken if it belongs to this user or to root and nobody else may write to it, if it has a note that says what it was
// built against, and if all of that is what this program was built against: a module is rebuilt for each minor release. A module that
// was loaded is never unloaded, since threads and objects of its code may be anywhere.
#pragma once

#include <verbena/core/module/module.hpp>

#include <string>
#include <string_view>
#include <vector>

#pragma GCC visibility push(default)

namespace verbena {

/// What a module's note says, line by line.
struct module_note {
    /// One line of the note.
    struct line {
        std::string key;   ///< before the `=`
        std::string value; ///< behind it
        bool operator==(const line&) const = default;
    };
    std::vector<line> lines; ///< in the order of the file

    /// Empty for a key that it has not.
    std::string_view value_of(std::string_view key) const noexcept;
};

/// One thing in which a module and this program differ.
struct module_mismatch {
    std::string what;    ///< "compiler", or the type: "verbena::storage::file_backend"
    std::string module;  ///< what the module has
    std::string program; ///< of both: empty where it has no such thing
    /// A line for people: both sides.
    std::string text() const;
};

/// The largest file and note that are read.
inline constexpr std::size_t max_module_file = std::size_t(1) << 30;
/// Bytes of the note.
inline constexpr std::size_t max_module_note = std::size_t(1) << 20;

/// The most symbols of a file that are looked at, the longest name of one, and the most that are told to be missing.
inline constexpr std::size_t max_module_symbols = std::size_t(1) << 18;
/// Bytes of one symbol's name.
inline constexpr std::size_t max_symbol_name = std::size_t(1) << 14;
/// Missing symbols that are told of at most.
inline constexpr std::size_t max_missing_symbols = 64;

/// Where a module's file is: one with a slash stands for itself, a bare name for NAME.so in the folder for modules.
std::string module_path(std::string_view name_or_path);

/// Reads the note of a file, of which nothing is loaded. Throws config_error, beginning with the path, for a file that can't be
/// had, that others may write to, or that is no module.
module_note read_module_note(const std::string& path);
/// What this program was built against, for modules of that role; no lines for a role that there is not.
module_note own_module_note(std::string_view role);
/// All differences, the build's before the types'. Empty: the module may be loaded.
std::vector<module_mismatch> compare(const module_note& module, const module_note& program);

/// What code of the file uses and this program has not, by names for people, at most max_missing_symbols of them: the file could not be
/// loaded. Nothing is loaded to tell it. Where the file needs libraries that this program has not loaded, only names of verbena are told,
/// since others may be theirs. Throws config_error, as read_module_note() does.
std::vector<std::string> missing_symbols(const std::string& path);

/// Reads, compares, loads and adds to `table`. Throws config_error, beginning with the path, with all differences and the cure.
/// Not thread-safe.
void load_module(module_table& table, const std::string& path);

} // namespace verbena

#pragma GCC visibility pop
