// SPDX-License-Identifier: Apache-2.0
// Copies files and trees between stores, several files and several requests per file at once.
#pragma once

#include "store.hpp"

#include <verbena/core/task/scope.hpp>
#include <verbena/core/task/semaphore.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace verbena::cli {

struct copy_options {
    bool recursive = false;
    bool preserve = false; ///< mode and times
    bool checksum = false; ///< read back what was written and compare
    bool quiet = false;    ///< checksums are kept for checksums() rather than printed
    unsigned files = 8;    ///< in flight
    unsigned depth = 8;    ///< requests in flight per file
};

struct copy_totals {
    std::uint64_t files = 0;
    std::uint64_t directories = 0;
    std::uint64_t links = 0;
    std::uint64_t bytes = 0;
    std::uint64_t expected_bytes = 0; ///< of the files found so far
    std::uint64_t expected_files = 0;
    std::uint64_t failures = 0;
    bool counting = false; ///< a tree is being walked, so more may be found
};

class copier {
public:
    /// Chunks between their read and the end of their write, over all files: bounds memory.
    static constexpr unsigned max_chunks = 48;
    static constexpr unsigned max_files = 64;
    static constexpr unsigned max_depth = 64;

    copier(runtime& r, const copy_options& o);
    /// A source that could not even be opened, and was told.
    void count_failure() noexcept { ++totals_.failures; }
    /// Copies `from_path` to `to_path`. What fails is told on stderr and counted; the rest goes on. Once a server is gone (ends_all),
    /// nothing more is asked of it: what is left out for that is told and counted, and other servers' files are copied.
    task<void> copy(store& from, std::string from_path, store& to, std::string to_path);
    const copy_totals& totals() const noexcept { return totals_; }

    struct file_checksum {
        std::string path;
        std::string sha256;
    };
    const std::vector<file_checksum>& checksums() const noexcept { return checksums_; }

private:
    struct one_file;
    void note_checksum(std::string path, std::string digest);
    task<void> copy_entry(store& from, std::string from_path, store& to, std::string to_path, scope& files);
    /// Makes a directory of the target; false, and told, if that can't be, or it is what is being copied.
    task<bool> enter(store& from, const std::string& from_path, const file_info& info, store& to,
                     const std::string& to_path);
    /// True if that directory is the one that the tree is copied to, at the moment.
    task<bool> is_top(store& from, std::string from_path, store& to);
    /// True if writing `to_path` would destroy what `info` is of.
    task<bool> is_itself(store& from, const file_info& info, store& to, std::string to_path);
    task<void> copy_file(store& from, std::string from_path, store& to, std::string to_path, file_info info);
    /// False if the data have to be read and written.
    task<bool> copied_within(store& from, store& to, one_file& f);
    task<result<void>> copy_data(one_file& f);
    task<void> copy_chunks(one_file& f);
    task<result<std::string>> digest_of(open_file& f, std::uint32_t chunk, std::uint64_t size);
    /// `where` is the store that refused `what`.
    void fail(const store& where, const std::string& what, const error& why);
    struct gone_server {
        std::string name; // store::server()
        error why;
    };
    const gone_server* find_gone(const store& a) const;
    void tell_left_out(const std::string& what, std::uint64_t count, const gone_server& server);

    runtime& runtime_;
    copy_options options_;
    copy_totals totals_;
    std::vector<file_checksum> checksums_;
    bool denied_ = false;
    std::vector<gone_server> gone_; ///< what remains of theirs would wait in vain, one by one; each once
    bool over_ = false;             ///< one of the two stores is of such a server
    std::uint64_t left_out_ = 0;    ///< of the entries that were found, for that
    std::optional<file_info> top_;  ///< the directory that a tree is copied to
    std::string top_path_;
    std::vector<std::pair<std::string, file_info>> finish_; ///< directories to get their times
    semaphore file_permits_;
    semaphore chunk_permits_{max_chunks};
};

} // namespace verbena::cli
