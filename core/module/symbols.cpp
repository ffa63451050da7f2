// SPDX-License-Identifier: Apache-2.0
#include "symbols.hpp"

#include <verbena/core/net/net.hpp>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <cxxabi.h>
#include <elf.h>
#include <fcntl.h>
#include <limits.h>
#include <link.h>
#include <memory>
#include <optional>
#include <span>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

namespace verbena::detail {
namespace {

constexpr std::size_t longest_name = 200;

// A part of the process: a file, as it is loaded.
struct loaded {
    std::string path;
    bool program = false; // /proc/self/exe, whatever its path leads to by now
    std::uintptr_t bias = 0;
    std::vector<std::byte> headers; // its program headers, to know the file again
    std::vector<std::uintptr_t> addresses;
};

struct search {
    std::span<const std::uintptr_t> addresses; // sorted
    std::vector<loaded> found;
};

int look_at(dl_phdr_info* info, std::size_t, void* data)
{
    auto& s = *static_cast<search*>(data);
    const std::span<const ElfW(Phdr)> headers(info->dlpi_phdr, info->dlpi_phnum);
    loaded l;
    for (const std::uintptr_t a : s.addresses) {
        if (std::ranges::any_of(headers, [&](const ElfW(Phdr) & h) {
                return h.p_type == PT_LOAD && a - info->dlpi_addr >= h.p_vaddr &&
                       a - info->dlpi_addr < h.p_vaddr + h.p_memsz;
            }))
            l.addresses.push_back(a);
    }
    if (l.addresses.empty())
        return 0;
    l.path = info->dlpi_name;
    l.bias = info->dlpi_addr;
    const auto bytes = std::as_bytes(headers);
    l.headers.assign(bytes.begin(), bytes.end());
    if (l.path.empty()) {
        std::array<char, PATH_MAX> path;
        const ssize_t n = ::readlink("/proc/self/exe", path.data(), path.size());
        l.path = n > 0 ? std::string(path.data(), std::size_t(n)) : "the program";
        l.program = true;
    }
    s.found.push_back(std::move(l));
    return 0;
}

// A file in memory, of which nothing is believed.
class elf_file {
public:
    explicit elf_file(const char* path)
    {
        const net::unique_fd fd(::open(path, O_RDONLY | O_CLOEXEC));
        struct stat st;
        if (fd.get() < 0 || ::fstat(fd.get(), &st) != 0 || !S_ISREG(st.st_mode) || st.st_size <= 0)
            return;
        const auto size = static_cast<std::size_t>(st.st_size);
        void* at = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd.get(), 0);
        if (at != MAP_FAILED)
            bytes_ = {static_cast<const std::byte*>(at), size};
    }
    elf_file(const elf_file&) = delete;
    ~elf_file()
    {
        if (!bytes_.empty())
            ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
    }
    std::span<const std::byte> part(std::uint64_t offset, std::uint64_t size) const noexcept
    {
        if (offset > bytes_.size() || size > bytes_.size() - offset)
            return {};
        return bytes_.subspan(offset, size);
    }
    template<class T>
    std::optional<T> read(std::uint64_t offset) const noexcept
    {
        const auto from = part(offset, sizeof(T));
        if (from.empty())
            return std::nullopt;
        T out;
        std::memcpy(&out, from.data(), sizeof out);
        return out;
    }

private:
    std::span<const std::byte> bytes_;
};

// Calls f(address, name) for each of `l`'s addresses that a symbol of the file covers.
template<class F>
void find_symbols(const elf_file& file, const loaded& l, F f)
{
    const auto header = file.read<ElfW(Ehdr)>(0);
    if (!header || std::memcmp(header->e_ident, ELFMAG, SELFMAG) != 0 ||
        header->e_shentsize != sizeof(ElfW(Shdr)))
        return;
    // An upgrade may have put another file there, whose symbols would name the wrong functions.
    const auto headers = file.part(header->e_phoff, l.headers.size());
    if (!std::ranges::equal(headers, l.headers))
        return;
    const auto section = [&](std::uint64_t i) {
        return file.read<ElfW(Shdr)>(header->e_shoff + i * sizeof(ElfW(Shdr)));
    };
    for (unsigned i = 0; i < header->e_shnum; ++i) {
        const auto table = section(i);
        if (!table || (table->sh_type != SHT_SYMTAB && table->sh_type != SHT_DYNSYM))
            continue;
        const auto strings = section(table->sh_link);
        if (!strings)
            continue;
        const auto text = file.part(strings->sh_offset, strings->sh_size);
        const auto symbols = file.part(table->sh_offset, table->sh_size);
        for (std::size_t at = 0; at + sizeof(ElfW(Sym)) <= symbols.size(); at += sizeof(ElfW(Sym))) {
            ElfW(Sym) symbol;
            std::memcpy(&symbol, symbols.data() + at, sizeof symbol);
            if (ELF64_ST_TYPE(symbol.st_info) != STT_FUNC || symbol.st_shndx == SHN_UNDEF)
                continue;
            const std::uintptr_t start = l.bias + symbol.st_value;
            const auto first = std::ranges::lower_bound(l.addresses, start);
            for (auto a = first; a != l.addresses.end() && *a - start < symbol.st_size; ++a) {
                const auto name = text.subspan(std::min<std::size_t>(symbol.st_name, text.size()));
                if (std::ranges::find(name, std::byte{0}) != name.end())
                    f(*a, reinterpret_cast<const char*>(name.data()));
            }
        }
    }
}

// Where the last pair of parentheses, which holds the arguments, begins; npos if there is none.
std::size_t begin_of_arguments(std::string_view name) noexcept
{
    if (!name.ends_with(')'))
        return std::string_view::npos;
    int depth = 0;
    for (std::size_t i = name.size(); i-- > 0;) {
        if (name[i] == ')')
            ++depth;
        else if (name[i] == '(' && --depth == 0)
            return i;
    }
    return std::string_view::npos;
}

} // namespace

std::string coroutine_name(const char* symbol)
{
    int status = 0;
    const std::unique_ptr<char, decltype(&std::free)> demangled(
        abi::__cxa_demangle(symbol, nullptr, nullptr, &status), &std::free);
    if (!demangled)
        return symbol;
    std::string name = demangled.get();
    // clang calls a coroutine's further part foo.resume, GCC foo.actor.
    if (const std::size_t at = name.find(" [clone "); at != std::string::npos)
        name.resize(at);
    for (const std::string_view suffix : {" const", " &", " &&", " noexcept"}) {
        if (name.ends_with(suffix))
            name.resize(name.size() - suffix.size());
    }
    for (std::size_t at; (at = name.find(" const::")) != std::string::npos;)
        name.erase(at, std::string_view(" const").size());
    const std::size_t arguments = begin_of_arguments(name);
    // "operator()" of a lambda without arguments is followed by a pair of its own.
    if (arguments != std::string::npos && arguments > 0 &&
        !std::string_view(name).substr(0, arguments).ends_with("operator"))
        name.resize(arguments);
    // The return type, which the name of a template's function begins with.
    int depth = 0;
    for (std::size_t i = name.size(); i-- > 0;) {
        const char c = name[i];
        if (c == '>' || c == ')' || c == '}' || c == ']')
            ++depth;
        else if (c == '<' || c == '(' || c == '{' || c == '[')
            --depth;
        else if (c == ' ' && depth == 0) {
            name.erase(0, i + 1);
            break;
        }
    }
    if (name.size() > longest_name) {
        name.resize(longest_name);
        name += "...";
    }
    return name;
}

symbols::symbols(std::vector<std::uintptr_t> addresses)
{
    std::ranges::sort(addresses);
    const auto rest = std::ranges::unique(addresses);
    addresses.erase(rest.begin(), rest.end());
    search s{addresses, {}};
    ::dl_iterate_phdr(look_at, &s);
    for (const loaded& l : s.found) {
        for (const std::uintptr_t a : l.addresses) {
            std::array<char, 32> offset;
            std::snprintf(offset.data(), offset.size(), "+0x%zx", std::size_t(a - l.bias));
            names_[a] = l.path + offset.data();
        }
        const elf_file file(l.program ? "/proc/self/exe" : l.path.c_str());
        find_symbols(file, l,
                     [&](std::uintptr_t a, const char* symbol) { names_[a] = coroutine_name(symbol); });
    }
}

std::string symbols::name(std::uintptr_t address) const
{
    if (const auto at = names_.find(address); at != names_.end())
        return at->second;
    std::array<char, 32> text;
    std::snprintf(text.data(), text.size(), "0x%zx", std::size_t(address));
    return text.data();
}

} // namespace verbena::detail
