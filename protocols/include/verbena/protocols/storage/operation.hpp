// SPDX-License-Identifier: Apache-2.0
// The operations of a file back end by name, and sets of them: what a filter's settings choose.
#pragma once

#include <verbena/core/result.hpp>

#include <cstdint>
#include <string_view>

#pragma GCC visibility push(default)

namespace verbena::storage {

/// One for each function of file_backend that is a task. locate() counts as `read`.
enum class operation : std::uint8_t {
    getattr,
    setattr,
    lookup,
    access,
    open,
    readlink,
    read,
    write,
    create,
    mkdir,
    symlink,
    mknod,
    remove,
    rmdir,
    rename,
    link,
    readdir,
    statfs,
    commit,
    seek,
    allocate,
    deallocate,
    copy,
    clone,
    getxattr,
    setxattr,
    listxattrs,
    removexattr,
    getacl,
};
/// How many values operation has.
constexpr unsigned operation_count = 29;

/// "getattr", "read"...
std::string_view to_string(operation op) noexcept;

/// Some of the operations.
class operation_set {
public:
    constexpr operation_set() = default;
    /// A set of one.
    constexpr operation_set(operation op) noexcept : bits_(1u << unsigned(op)) {}

    /// Every operation.
    static constexpr operation_set all() noexcept { return operation_set((1u << operation_count) - 1); }
    /// Those that change names, attributes or what files there are: setattr, create, mkdir, symlink, mknod, remove, rmdir,
    /// rename, link, setxattr and removexattr.
    static constexpr operation_set changes() noexcept
    {
        using enum operation;
        return operation_set(setattr) | create | mkdir | symlink | mknod | remove | rmdir | rename | link |
               setxattr | removexattr;
    }
    /// All but those of data: read, write, commit, allocate, deallocate, copy and clone.
    static constexpr operation_set metadata() noexcept
    {
        using enum operation;
        return operation_set(
            all().bits_ &
            ~(operation_set(read) | write | commit | allocate | deallocate | copy | clone).bits_);
    }

    /// Whether `op` is in the set.
    constexpr bool contains(operation op) const noexcept { return (bits_ >> unsigned(op) & 1) != 0; }
    constexpr bool empty() const noexcept { return bits_ == 0; }
    friend constexpr operation_set operator|(operation_set a, operation_set b) noexcept
    {
        return operation_set(a.bits_ | b.bits_);
    }
    constexpr operation_set& operator|=(operation_set other) noexcept { return *this = *this | other; }
    friend constexpr bool operator==(operation_set, operation_set) = default;

private:
    explicit constexpr operation_set(std::uint32_t bits) noexcept : bits_(bits) {}
    std::uint32_t bits_ = 0;
};

/// What `name` stands for: an operation's name, or "all", "metadata", "changes" or "sync" (commit). EINVAL for another name.
result<operation_set> parse_operations(std::string_view name);

} // namespace verbena::storage

#pragma GCC visibility pop
