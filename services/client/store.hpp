// SPDX-License-Identifier: Apache-2.0
// A tree of files to copy from or to, on this machine or on a server. Paths are relative to the
// tree's root, "" is the root itself. Shard-local.
#pragma once

#include "open_file.hpp"
#include "runtime.hpp"
#include "session.hpp"

#include <verbena/core/memory/buffer.hpp>
#include <verbena/core/result.hpp>
#include <verbena/core/task/task.hpp>
#include <verbena/protocols/rpc/payload.hpp>

#include <cstdint>
#include <ctime>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace verbena::cli {

enum class file_kind : std::uint8_t { regular, directory, link, other };

struct file_info {
    file_kind kind = file_kind::other;
    std::uint32_t mode = 0; ///< permission bits
    std::uint64_t size = 0;
    timespec mtime{};
    timespec atime{};
    timespec ctime{};
    std::uint64_t file_system = 0; ///< with `id`: which file it is, at one place
    std::uint64_t view = 0;        ///< of the file system: the same files may be seen in several ways
    std::uint64_t id = 0;
};

class store {
public:
    virtual ~store() = default;
    virtual task<result<file_info>> stat(std::string path, bool follow) = 0;
    /// Names as they were found; one for which nfs::is_name() is false can't be asked for.
    virtual task<result<std::vector<std::string>>> list(std::string path) = 0;
    virtual task<result<std::string>> read_link(std::string path) = 0;
    virtual task<result<std::unique_ptr<open_file>>> open(std::string path) = 0;
    /// Leaves in place what is there, for write() and then cut(): should it be the source, and nothing tell, then copying
    /// changes nothing.
    virtual task<result<std::unique_ptr<open_file>>> create(std::string path, std::uint32_t mode) = 0;
    /// Copies `length` bytes of `from`, which open() of `source` yielded, to the beginning of `to`, which create() of this yielded, without their going
    /// through this process. Yields how many they were. `progress` hears of them as they are copied. not_supported: that can't be; whoever asked
    /// reads and writes then.
    virtual task<result<std::uint64_t>> copy_within(store& source, open_file& from, open_file& to,
                                                    std::uint64_t length,
                                                    std::function<void(std::uint64_t)> progress) = 0;
    /// Succeeds when a directory is there already.
    virtual task<result<void>> make_directory(std::string path, std::uint32_t mode) = 0;
    virtual task<result<void>> make_link(std::string path, std::string target) = 0;
    virtual task<result<void>> set_mode_and_times(std::string path, const file_info& info) = 0;
    /// The most that one read or write should move.
    virtual std::uint32_t transfer_size() const noexcept = 0;
    /// Where its files have their numbers from: of which host they are, as far as its name tells; empty: of this one.
    virtual std::string place() const = 0;
    /// Which server answers for its files, as text that no other has.
    virtual std::string server() const = 0;
    /// How the user would write the path.
    virtual std::string name_of(const std::string& path) const = 0;
};

std::unique_ptr<store> make_local_store(runtime& r, std::string root);
/// `s` is mounted and outlives the store; `root` lies below the mounted export.
std::unique_ptr<store> make_remote_store(session& s, std::string root);

/// True if both are one file. What is here may be a server's too, a server be known by two names, and a file lie in two exports (which version 4
/// tells apart): then it is one of which all times agree.
bool same_file(const store& a, const file_info& x, const store& b, const file_info& y);

/// "a" and "b" give "a/b"; either may be empty.
std::string join(const std::string& directory, const std::string& name);

} // namespace verbena::cli
