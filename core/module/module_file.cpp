// SPDX-License-Identifier: Apache-2.0
#include <verbena/core/module/abi.hpp>
#include <verbena/core/module/module_file.hpp>
#include <verbena/core/unique_fd.hpp>

#include "module_directory.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <cxxabi.h>
#include <dlfcn.h>
#include <elf.h>
#include <fcntl.h>
#include <filesystem>
#include <map>
#include <memory>
#include <sys/stat.h>
#include <system_error>
#include <unistd.h>
#include <utility>

namespace verbena {

namespace {

[[noreturn]] void refuse_file(const std::string& path, const std::string& why)
{
    throw config_error(path + ": " + why);
}

std::string errno_text(int number) { return std::generic_category().message(number); }

constexpr mode_t written_by_others = S_IWGRP | S_IWOTH;

// The path without links, if no folder on it is somebody else's to change.
std::string trusted_path(const std::string& path)
{
    std::error_code failed;
    const std::filesystem::path real = std::filesystem::canonical(path, failed);
    if (failed)
        refuse_file(path, failed.message() + (failed == std::errc::no_such_file_or_directory
                                                  ? ": write the path of the module's file"
                                                  : ""));
    for (std::filesystem::path folder = real.parent_path();; folder = folder.parent_path()) {
        struct stat s{};
        if (::stat(folder.c_str(), &s) != 0)
            refuse_file(path, errno_text(errno));
        if (s.st_uid != 0 && s.st_uid != ::geteuid())
            refuse_file(path,
                        "lies in " + folder.string() + ", which belongs to user " + std::to_string(s.st_uid) +
                            ", who could put another file there: move it to a folder of root's or of user " +
                            std::to_string(::geteuid()));
        if ((s.st_mode & written_by_others) != 0 && (s.st_mode & S_ISVTX) == 0)
            refuse_file(
                path,
                "lies in " + folder.string() +
                    ", where others may write, and could put another file: chmod go-w, or move it elsewhere");
        if (folder == folder.root_path())
            return real.string();
    }
}

// A file whose content, and whose place, is only ours or root's to decide.
class trusted_file {
public:
    explicit trusted_file(const std::string& path)
        : path_(path),
          real_(trusted_path(path)),
          fd_(::open(real_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY | O_NOFOLLOW))
    {
        if (fd_.get() < 0 || ::fstat(fd_.get(), &status_) != 0)
            refuse_file(path_, errno_text(errno));
        if (!S_ISREG(status_.st_mode))
            refuse_file(path_, "is no file that could be a module");
        if (status_.st_uid != 0 && status_.st_uid != ::geteuid())
            refuse_file(path_, "belongs to user " + std::to_string(status_.st_uid) +
                                   ", who could put other code there: a module belongs to root or to user " +
                                   std::to_string(::geteuid()) + " (chown)");
        if ((status_.st_mode & written_by_others) != 0)
            refuse_file(path_, "others may write to it, and could put other code there: chmod go-w");
        if (static_cast<std::uint64_t>(status_.st_size) > max_module_file)
            refuse_file(path_, "is larger than " + std::to_string(max_module_file >> 20) + " MiB");
    }
    int fd() const noexcept { return fd_.get(); }
    std::uint64_t size() const noexcept { return static_cast<std::uint64_t>(status_.st_size); }
    // For the loader, which opens it anew. Only this user and root can have put another file there since it was read.
    const std::string& path_for_loader() const
    {
        struct stat now{};
        if (::lstat(real_.c_str(), &now) != 0 || now.st_dev != status_.st_dev || now.st_ino != status_.st_ino)
            refuse_file(path_, "was replaced while it was read: try again");
        return real_;
    }

private:
    const std::string& path_;
    std::string real_;
    unique_fd fd_;
    struct stat status_{};
};

// Reads from a file that says of itself where things are, and may lie.
class elf_file {
public:
    elf_file(const std::string& path, int fd, std::uint64_t size) : path_(path), fd_(fd), size_(size) {}

    std::string note() const
    {
        const Elf64_Ehdr header = checked_header();
        if (header.e_phentsize != sizeof(Elf64_Phdr) || header.e_phnum > max_segments)
            damaged();
        std::string found;
        for (unsigned i = 0; i < header.e_phnum; ++i) {
            Elf64_Phdr segment;
            read(offset_of(header.e_phoff, std::uint64_t(i) * sizeof segment), &segment, sizeof segment);
            // A file that was cut is mapped all the same, and its end is SIGBUS.
            if (segment.p_type == PT_LOAD)
                (void)offset_of(segment.p_offset, segment.p_filesz);
            if (segment.p_type == PT_NOTE)
                search(segment.p_offset, segment.p_filesz, segment.p_align, found);
        }
        if (found.empty())
            refuse_file(
                path_,
                "is no module of verbena: it has no note of what it was built against (VERBENA_MODULE)");
        return found;
    }

    struct dependencies {
        std::vector<std::string> symbols; ///< that the file uses and has not, as the linker knows them
        std::vector<std::string> libraries;
    };
    /// None in a file without section headers.
    dependencies needs() const
    {
        const Elf64_Ehdr header = checked_header();
        dependencies found;
        if (header.e_shnum == 0)
            return found;
        if (header.e_shentsize != sizeof(Elf64_Shdr))
            damaged();
        bool seen_symbols = false;
        bool seen_libraries = false;
        for (unsigned i = 0; i < header.e_shnum; ++i) {
            const Elf64_Shdr s = section(header, i);
            // One of each: more, all of them large, would take hours.
            if ((s.sh_type != SHT_DYNSYM || std::exchange(seen_symbols, true)) &&
                (s.sh_type != SHT_DYNAMIC || std::exchange(seen_libraries, true)))
                continue;
            const std::string names = content(section(header, s.sh_link), max_names);
            if (s.sh_type == SHT_DYNSYM)
                each<Elf64_Sym>(
                    content(s, max_module_symbols * sizeof(Elf64_Sym)), [&](const Elf64_Sym& symbol) {
                        // What is weak may be missing.
                        if (symbol.st_shndx == SHN_UNDEF && ELF64_ST_BIND(symbol.st_info) == STB_GLOBAL)
                            found.symbols.push_back(name_at(names, symbol.st_name));
                    });
            else
                each<Elf64_Dyn>(content(s, max_dynamic * sizeof(Elf64_Dyn)), [&](const Elf64_Dyn& entry) {
                    if (entry.d_tag == DT_NEEDED)
                        found.libraries.push_back(name_at(names, entry.d_un.d_val));
                });
        }
        return found;
    }

private:
    static constexpr unsigned max_segments = 256;
    static constexpr std::size_t max_names = std::size_t(64) << 20;
    static constexpr std::size_t max_dynamic = 4096;

    Elf64_Ehdr checked_header() const
    {
        Elf64_Ehdr header;
        read(0, &header, sizeof header);
        if (std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0)
            refuse_file(path_, "is no ELF file");
        if (header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_ident[EI_DATA] != own_order ||
            header.e_machine != own_machine())
            refuse_file(path_, "was built for another kind of machine");
        if (header.e_type != ET_DYN)
            refuse_file(path_, "is no shared object: build it as a shared_module()");
        return header;
    }
    Elf64_Shdr section(const Elf64_Ehdr& header, unsigned index) const
    {
        if (index >= header.e_shnum)
            damaged();
        Elf64_Shdr found;
        read(offset_of(header.e_shoff, std::uint64_t(index) * sizeof found), &found, sizeof found);
        return found;
    }
    std::string content(const Elf64_Shdr& s, std::size_t most) const
    {
        if (s.sh_size > most)
            refuse_file(path_, "has more symbols, or longer names, than are looked at");
        std::string bytes(s.sh_size, '\0');
        if (!bytes.empty())
            read(s.sh_offset, bytes.data(), bytes.size());
        return bytes;
    }
    template<class T, class F>
    static void each(std::string_view bytes, F f)
    {
        for (; bytes.size() >= sizeof(T); bytes.remove_prefix(sizeof(T))) {
            T one;
            std::memcpy(&one, &*bytes.begin(), sizeof one);
            f(one);
        }
    }
    std::string name_at(std::string_view names, std::uint64_t offset) const
    {
        if (offset >= names.size())
            damaged();
        const std::string_view name = names.substr(offset, max_symbol_name + 1);
        const std::size_t end = name.find('\0');
        if (end == std::string_view::npos)
            damaged();
        return std::string(name.substr(0, end));
    }
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    static constexpr unsigned char own_order = ELFDATA2LSB;
#else
    static constexpr unsigned char own_order = ELFDATA2MSB;
#endif
    // That of the program which runs here.
    static Elf64_Half own_machine()
    {
        Elf64_Ehdr own{};
        const unique_fd self(::open("/proc/self/exe", O_RDONLY | O_CLOEXEC));
        if (::pread(self.get(), &own, sizeof own, 0) != ssize_t(sizeof own))
            return EM_NONE;
        return own.e_machine;
    }
    [[noreturn]] void damaged() const { refuse_file(path_, "is a damaged ELF file: build it again"); }
    std::uint64_t offset_of(std::uint64_t a, std::uint64_t b) const
    {
        if (a > size_ || b > size_ - a)
            damaged();
        return a + b;
    }
    void read(std::uint64_t offset, void* to, std::size_t count) const
    {
        if (offset > size_ || count > size_ - offset)
            damaged();
        if (::pread(fd_, to, count, static_cast<off_t>(offset)) != static_cast<ssize_t>(count))
            damaged();
    }
    void search(std::uint64_t offset, std::uint64_t size, std::uint64_t align, std::string& found) const
    {
        if (size > max_module_note || align > 8)
            return; // somebody else's
        std::string memory(size, '\0');
        read(offset, memory.data(), memory.size());
        std::string_view all = memory;
        const std::size_t unit = align == 8 ? 8 : 4;
        const auto padded = [unit](std::size_t n) { return (n + unit - 1) / unit * unit; };
        while (all.size() >= sizeof(Elf64_Nhdr)) {
            Elf64_Nhdr head;
            std::memcpy(&head, all.data(), sizeof head);
            // Sizes have 32 bits: no sum of them overflows.
            const std::size_t text_at = padded(sizeof head + head.n_namesz);
            if (text_at > all.size() || head.n_descsz > all.size() - text_at)
                damaged();
            const std::string_view owner = all.substr(sizeof head, head.n_namesz);
            if (owner == std::string_view("verbena\0", 8) && head.n_type == detail::abi_note<1>::note_type) {
                if (!found.empty())
                    refuse_file(path_, "has two notes of verbena: VERBENA_MODULE may stand once in a file");
                found = all.substr(text_at, head.n_descsz);
            }
            all.remove_prefix(std::min(padded(text_at + head.n_descsz), all.size()));
        }
    }

    const std::string& path_;
    int fd_;
    std::uint64_t size_;
};

module_note parse_note(std::string_view text)
{
    module_note note;
    text = text.substr(0, text.find('\0'));
    while (!text.empty()) {
        const std::string_view line = text.substr(0, text.find('\n'));
        text.remove_prefix(std::min(line.size() + 1, text.size()));
        const std::size_t equals = line.rfind('=');
        if (equals == std::string_view::npos)
            continue;
        note.lines.push_back({std::string(line.substr(0, equals)), std::string(line.substr(equals + 1))});
    }
    return note;
}

std::string demangled(const std::string& symbol)
{
    int failed = 0;
    const std::unique_ptr<char, decltype(&std::free)> name(
        abi::__cxa_demangle(symbol.c_str(), nullptr, nullptr, &failed), &std::free);
    return name == nullptr ? symbol : std::string(name.get());
}

bool is_of_a_type(std::string_view key) noexcept { return key.find("::") != std::string_view::npos; }
bool is_of_a_header(std::string_view key) noexcept { return key.ends_with(".hpp"); }

std::string differences(const std::vector<module_mismatch>& all)
{
    constexpr std::size_t most = 8;
    std::string text;
    for (std::size_t i = 0; i < std::min(all.size(), most); ++i)
        text += "\n  " + all[i].text();
    if (all.size() > most)
        text += "\n  and " + std::to_string(all.size() - most) + " more";
    return text;
}

} // namespace

std::string_view module_note::value_of(std::string_view key) const noexcept
{
    const auto found = std::ranges::find(lines, key, &line::key);
    return found == lines.end() ? std::string_view() : std::string_view(found->value);
}

std::string module_mismatch::text() const
{
    const char* kind = is_of_a_type(what) ? "the type " : is_of_a_header(what) ? "functions of " : "";
    if (*kind == '\0')
        return what + ": the module has " + (module.empty() ? "none" : module) + ", this program " +
               (program.empty() ? "none" : program);
    if (module.empty() || program.empty())
        return kind + what + ": only " + (module.empty() ? "this program" : "the module") + " knows it";
    return kind + what + ": the module was built against another definition (" + module + ", here " +
           program + ")";
}

std::string module_path(std::string_view name)
{
    if (name.find('/') != std::string_view::npos)
        return std::string(name);
    return VERBENA_MODULE_DIRECTORY "/" + std::string(name) + ".so";
}

module_note read_module_note(const std::string& path)
{
    const trusted_file file(path);
    return parse_note(elf_file(path, file.fd(), file.size()).note());
}

module_note own_module_note(std::string_view role)
{
    static constexpr std::pair<std::string_view, std::string_view> texts[] = {
        {"backend", VERBENA_ABI_BUILD VERBENA_ABI_INTERFACES_backend},
        {"block", VERBENA_ABI_BUILD VERBENA_ABI_INTERFACES_block},
        {"filter", VERBENA_ABI_BUILD VERBENA_ABI_INTERFACES_filter},
        {"program", VERBENA_ABI_BUILD VERBENA_ABI_INTERFACES_program},
        {"verbs", VERBENA_ABI_BUILD VERBENA_ABI_INTERFACES_verbs},
    };
    module_note note;
    for (const auto& [name, text] : texts) {
        if (name == role) {
            note = parse_note(text);
            note.lines.insert(note.lines.begin(), {"role", std::string(role)});
        }
    }
    return note;
}

std::vector<module_mismatch> compare(const module_note& module, const module_note& program)
{
    std::map<std::string_view, std::pair<std::string_view, std::string_view>> all;
    for (const module_note::line& l : module.lines)
        all[l.key].first = l.value;
    for (const module_note::line& l : program.lines)
        all[l.key].second = l.value;
    std::vector<module_mismatch> differing;
    for (const int pass : {0, 1, 2}) {
        for (const auto& [key, values] : all) {
            const int kind = is_of_a_type(key) ? 1 : is_of_a_header(key) ? 2 : 0;
            if (kind == pass && values.first != values.second)
                differing.push_back(
                    {std::string(key), std::string(values.first), std::string(values.second)});
        }
    }
    return differing;
}

std::vector<std::string> missing_symbols(const std::string& path)
{
    const trusted_file file(path);
    const elf_file::dependencies needs = elf_file(path, file.fd(), file.size()).needs();
    const bool all_libraries_are_here = std::ranges::all_of(needs.libraries, [](const std::string& name) {
        void* const loaded = ::dlopen(name.c_str(), RTLD_LAZY | RTLD_NOLOAD);
        if (loaded != nullptr)
            ::dlclose(loaded);
        return loaded != nullptr;
    });
    std::vector<std::string> missing;
    for (const std::string& symbol : needs.symbols) {
        if (missing.size() == max_missing_symbols)
            break;
        if (::dlsym(RTLD_DEFAULT, symbol.c_str()) != nullptr)
            continue;
        const std::string name = demangled(symbol);
        if (all_libraries_are_here || name.find("verbena::") != std::string::npos)
            missing.push_back(name);
    }
    return missing;
}

void load_module(module_table& table, const std::string& path)
{
    const trusted_file file(path);
    const module_note note = parse_note(elf_file(path, file.fd(), file.size()).note());
    const std::string role(note.value_of("role"));
    const module_note own = own_module_note(role);
    if (own.lines.empty())
        refuse_file(path, "is a module of the role \"" + role +
                              "\", which this program does not know: build it against the headers of "
                              "this version");
    if (const auto differing = compare(note, own); !differing.empty())
        refuse_file(path,
                    "was built against another verbena than this program: build it again, with the same "
                    "compiler, against the "
                    "headers of this version" +
                        differences(differing));
    void* handle = ::dlopen(file.path_for_loader().c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (handle == nullptr) {
        const std::string why = ::dlerror();
        refuse_file(
            path,
            "can't be loaded: " + why +
                (why.find("undefined symbol") != std::string::npos
                     ? "; a module uses the library of the program that loads it, so link that program with "
                       "libverbena.so, or with all of the static library and -rdynamic"
                     : ""));
    }
    void* symbol = ::dlsym(handle, "verbena_module");
    if (symbol == nullptr)
        refuse_file(path, "has no function verbena_module: VERBENA_MODULE makes it");
    const auto describe = reinterpret_cast<const module_descriptor* (*)()>(symbol);
    const module_descriptor* d = nullptr;
    try {
        d = describe();
    } catch (...) {
    }
    if (d == nullptr)
        refuse_file(path, "has no descriptor");
    table.add(*d, path, role);
}

} // namespace verbena
