// SPDX-License-Identifier: Apache-2.0
// Extended attributes, with the rules that Linux has for those of the name space "user".
#include "backend.hpp"

#include <cerrno>
#include <unistd.h>

namespace verbena::memfs {

namespace {

constexpr std::size_t longest_name = 250;
constexpr std::size_t largest_value = 65536;
constexpr std::size_t most_names = 65536; // bytes of all names of a file, as listxattr(2) gives them

std::size_t listed(std::string_view name) noexcept { return name.size() + sizeof("user."); }

int check_xattr_name(std::string_view name) noexcept
{
    if (name.empty() || name.find('\0') != name.npos)
        return EINVAL;
    return name.size() > longest_name ? ENAMETOOLONG : 0;
}

} // namespace

std::uint64_t backend::cost_of_xattrs(const node& n) noexcept
{
    std::uint64_t cost = 0;
    for (const auto& [name, value] : n.xattrs)
        cost += cost_of_xattr(name, value.size());
    return cost;
}

result<node*> backend::find_xattrs(const storage::request& r, const storage::handle& file,
                                   std::string_view name, int use)
{
    if (const int e = check_xattr_name(name))
        return fails(e, "the name of an extended attribute");
    if (use == W_OK && refuses_changes())
        return fails(EROFS, "the export is read-only");
    auto n = find(file);
    if (!n)
        return n;
    const node& f = **n;
    if (use == W_OK && f.is_kept)
        return fails(EROFS, kept_rule);
    if (!f.is_regular() && !f.is_directory())
        return fails(use == W_OK ? EPERM : ENODATA, "only files and directories have them");
    const bool sticky = f.is_directory() && (f.attrs.mode & 01000) != 0;
    if (use == W_OK && sticky && r.who.uid != 0 && r.who.uid != f.attrs.uid)
        return fails(EPERM, "an extended attribute of a sticky directory");
    if (rights_of(f, r.who, use == R_OK ? storage::ace_right::read_data : storage::ace_right::write_data) ==
        0)
        return fails(EACCES, "an extended attribute");
    return n;
}

task<result<std::vector<std::byte>>> backend::getxattr(const storage::request& r, const storage::handle& file,
                                                       std::string_view name)
{
    std::lock_guard lock(mutex_);
    auto n = find_xattrs(r, file, name, R_OK);
    if (!n)
        co_return n.error();
    const auto found = (*n)->xattrs.find(name);
    if (found == (*n)->xattrs.end())
        co_return fails(ENODATA, "getxattr");
    std::vector<std::byte> value = found->second;
    co_return value;
}

task<result<storage::change>> backend::setxattr(const storage::request& r, const storage::handle& file,
                                                std::string_view name, std::span<const std::byte> value,
                                                storage::xattr_mode mode)
{
    std::lock_guard lock(mutex_);
    auto n = find_xattrs(r, file, name, W_OK);
    if (!n)
        co_return n.error();
    if (value.size() > largest_value)
        co_return fails(E2BIG, "the value of an extended attribute");
    node& f = **n;
    const auto found = f.xattrs.find(name);
    if (found == f.xattrs.end() && mode == storage::xattr_mode::replace)
        co_return fails(ENODATA, "setxattr");
    if (found != f.xattrs.end() && mode == storage::xattr_mode::create)
        co_return fails(EEXIST, "setxattr");
    std::size_t names = found == f.xattrs.end() ? listed(name) : 0;
    for (const auto& [other, its] : f.xattrs)
        names += listed(other);
    const std::uint64_t gone = found == f.xattrs.end() ? 0 : cost_of_xattr(name, found->second.size());
    const std::uint64_t come = cost_of_xattr(name, value.size());
    if (names > most_names || (come > gone && come - gone > free_bytes()))
        co_return fails(ENOSPC, "setxattr");
    storage::change out;
    out.before = seen(f);
    f.xattrs.insert_or_assign(std::string(name), std::vector<std::byte>(value.begin(), value.end()));
    text_bytes_ += come - gone;
    f.touch(now());
    out.after = seen(f);
    co_return out;
}

task<result<std::vector<std::string>>> backend::listxattrs(const storage::request&,
                                                           const storage::handle& file)
{
    std::lock_guard lock(mutex_);
    auto n = find(file);
    if (!n)
        co_return n.error();
    std::vector<std::string> names;
    for (const auto& [name, value] : (*n)->xattrs)
        names.push_back(name);
    co_return names;
}

task<result<storage::change>> backend::removexattr(const storage::request& r, const storage::handle& file,
                                                   std::string_view name)
{
    std::lock_guard lock(mutex_);
    auto n = find_xattrs(r, file, name, W_OK);
    if (!n)
        co_return n.error();
    node& f = **n;
    const auto found = f.xattrs.find(name);
    if (found == f.xattrs.end())
        co_return fails(ENODATA, "removexattr");
    storage::change out;
    out.before = seen(f);
    text_bytes_ -= cost_of_xattr(name, found->second.size());
    f.xattrs.erase(found);
    f.touch(now());
    out.after = seen(f);
    co_return out;
}

} // namespace verbena::memfs
