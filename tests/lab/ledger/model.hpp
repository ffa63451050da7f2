// SPDX-License-Identifier: Apache-2.0
// What a server has acknowledged in one folder: names, objects and the operations that made them.
#pragma once

#include <verbena/protocols/nfs/wire/v3/types.hpp>

#include <cstdint>
#include <initializer_list>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace verbena::ledger {

using numbers = std::mt19937_64;

struct object {
    nfs::v3::ftype3 type = nfs::v3::ftype3::reg;
    std::optional<std::uint32_t> mode;  ///< if it was asked for
    std::string data;                   ///< of a file, or a link's target
    nfs::v3::specdata3 device;          ///< of a device
    std::optional<std::uint32_t> mtime; ///< if it was set after the last change
    std::optional<std::uint32_t> atime; ///< if it was set
    /// And group, if they were set.
    std::optional<std::pair<std::uint32_t, std::uint32_t>> owner;
    /// Of an exclusive create, as long as the file is as it was made.
    std::optional<nfs::v3::createverf3> verifier;
    std::optional<nfs::v3::nfs_fh3> handle;
    /// Where WRITEs went that nobody acknowledged as stable: [begin, end). They may lie beyond the data.
    std::vector<std::pair<std::uint64_t, std::uint64_t>> unsure;
    /// Where zeros may stand instead, [begin, end): a SETATTR to a lesser size had no answer.
    std::pair<std::uint64_t, std::uint64_t> zeroed{};
};

enum class kind : std::uint8_t {
    create,
    create_exclusive,
    mkdir,
    symlink,
    make_fifo,
    make_device,
    link,
    rename,
    rename_over, ///< a directory over an empty one
    remove,
    rmdir,
    chmod,
    chown,
    truncate,
    set_mtime,
    set_atime,
    write_file_sync,
    write_data_sync,
    write_and_commit, ///< UNSTABLE WRITEs and one COMMIT; acknowledged by the COMMIT
    read,             ///< and compare at once
};
inline constexpr unsigned kinds = 20;
const char* to_string(kind k) noexcept;

struct piece {
    std::uint64_t offset = 0;
    std::string data;
};

struct operation {
    kind what = kind::create;
    std::string path;            ///< relative to the folder
    std::string to;              ///< rename: the new name; link: the new name
    std::uint32_t number = 0;    ///< mode, owner, size, octets to read or seconds
    std::uint64_t offset = 0;    ///< of a read
    std::uint32_t group = 0;     ///< chown: the new one
    std::string target;          ///< of a symbolic link
    std::vector<piece> pieces{}; ///< of a write
    nfs::v3::specdata3 device;   ///< of make_device
    nfs::v3::createverf3 verifier{};
    std::string description() const;
};

/// In octets.
struct sizes {
    std::size_t file = 128 * 1024; ///< the largest
    std::size_t most = 40'000;     ///< of one WRITE or read; two thirds are of 3000 at most
};

/// The folder itself has the name "". Copies share no object.
class model {
public:
    explicit model(const sizes& s = sizes());
    model(const model& other);
    model& operator=(const model&) = delete;

    const std::map<std::string, std::shared_ptr<object>>& names() const noexcept { return names_; }
    object& at(const std::string& path) const { return *names_.at(path); }
    /// How many names of this folder lead to `o`.
    unsigned links_of(const object& o) const;
    /// Names directly in the directory `path`.
    std::vector<std::string> list(const std::string& path) const;

    /// An operation that the server must carry out in this state.
    operation choose(numbers& random) const;
    /// `o` was acknowledged.
    void apply(const operation& o);
    /// `o` was begun, and nobody knows how far it came: what a write may have changed is not known until its answer.
    void begin(const operation& o);

private:
    std::string any_of(numbers& random, std::initializer_list<nfs::v3::ftype3> types) const;
    std::string new_name(numbers& random) const;
    std::size_t some_size(numbers& random) const;
    bool is_empty(const std::string& path) const { return list(path).empty(); }

    sizes sizes_;
    std::map<std::string, std::shared_ptr<object>> names_;
};

/// "a/b" -> "a", "b"; "b" -> "", "b".
std::pair<std::string, std::string> split(const std::string& path);

} // namespace verbena::ledger
