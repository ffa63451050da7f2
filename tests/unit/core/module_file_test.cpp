// SPDX-License-Identifier: Apache-2.0
// What is found out about a module's file before any code of it runs. The files here are nothing but a note: one that passes all
// checks is refused by the loader.
#include <boost/test/unit_test.hpp>

#include <verbena/core/module/module_file.hpp>

#include <cstring>
#include <elf.h>
#include <filesystem>
#include <fstream>
#include <string>
#include <sys/stat.h>
#include <unistd.h>
#include <vector>

BOOST_AUTO_TEST_SUITE(module_file_test)

using namespace verbena;

namespace {

template<class T>
void append(std::string& to, const T& value)
{
    to.append(reinterpret_cast<const char*>(&value), sizeof value);
}

std::string note_of(const std::string& owner, std::uint32_t type, std::string text)
{
    std::string note;
    append(note,
           Elf64_Nhdr{static_cast<Elf64_Word>(owner.size()), static_cast<Elf64_Word>(text.size()), type});
    for (std::string part : {owner, std::move(text)}) {
        part.resize((part.size() + 3) / 4 * 4);
        note += part;
    }
    return note;
}

const std::string our_name("verbena", 8);

// A shared object that has notes and a segment to load of `loaded` bytes.
std::string object_with(const std::string& notes, std::uint64_t loaded = 0)
{
    Elf64_Ehdr own{};
    std::ifstream("/proc/self/exe", std::ios::binary).read(reinterpret_cast<char*>(&own), sizeof own);
    own.e_type = ET_DYN;
    own.e_phoff = sizeof own;
    own.e_phentsize = sizeof(Elf64_Phdr);
    own.e_phnum = 2;
    own.e_shnum = 0;
    std::string file;
    append(file, own);
    Elf64_Phdr segment{};
    segment.p_type = PT_NOTE;
    segment.p_offset = sizeof own + 2 * sizeof segment;
    segment.p_filesz = notes.size();
    segment.p_align = 4;
    append(file, segment);
    segment.p_type = PT_LOAD;
    segment.p_offset = 0;
    segment.p_filesz = loaded;
    append(file, segment);
    return file + notes;
}

// Of a file that uses `symbols` and `libraries`: "verbena::f()" by the name that the linker knows.
struct used {
    std::vector<std::string> symbols;
    std::vector<std::string> weak;
    std::vector<std::string> libraries;
};

// A shared object with nothing but tables of what it uses.
std::string object_that_uses(const used& what)
{
    std::string names(1, '\0');
    const auto name = [&](const std::string& text) {
        const auto at = static_cast<Elf64_Word>(names.size());
        names += text + '\0';
        return at;
    };
    std::string symbols;
    append(symbols, Elf64_Sym{});
    const auto add = [&](const std::string& text, unsigned binding, Elf64_Section where) {
        Elf64_Sym s{};
        s.st_name = name(text);
        s.st_info = static_cast<unsigned char>(ELF64_ST_INFO(binding, STT_FUNC));
        s.st_shndx = where;
        append(symbols, s);
    };
    add("verbena_test_its_own", STB_GLOBAL, 1);
    for (const std::string& text : what.symbols)
        add(text, STB_GLOBAL, SHN_UNDEF);
    for (const std::string& text : what.weak)
        add(text, STB_WEAK, SHN_UNDEF);
    std::string needed;
    for (const std::string& text : what.libraries) {
        Elf64_Dyn d{};
        d.d_tag = DT_NEEDED;
        d.d_un.d_val = name(text);
        append(needed, d);
    }
    Elf64_Ehdr own{};
    std::ifstream("/proc/self/exe", std::ios::binary).read(reinterpret_cast<char*>(&own), sizeof own);
    own.e_type = ET_DYN;
    own.e_shoff = sizeof own;
    own.e_shentsize = sizeof(Elf64_Shdr);
    own.e_shnum = 4;
    std::string file;
    append(file, own);
    std::uint64_t at = sizeof own + 4 * sizeof(Elf64_Shdr);
    const auto section = [&](Elf64_Word type, const std::string& content, Elf64_Word link) {
        Elf64_Shdr s{};
        s.sh_type = type;
        s.sh_offset = at;
        s.sh_size = content.size();
        s.sh_link = link;
        append(file, s);
        at += content.size();
    };
    section(SHT_NULL, "", 0);
    section(SHT_DYNSYM, symbols, 3);
    section(SHT_DYNAMIC, needed, 3);
    section(SHT_STRTAB, names, 0);
    return file + symbols + needed + names;
}

std::string text_of(const module_note& note)
{
    std::string text;
    for (const module_note::line& l : note.lines)
        text += l.key + '=' + l.value + '\n';
    return text + '\0';
}

std::string fitting() { return object_with(note_of(our_name, 1, text_of(own_module_note("program")))); }

class folder {
public:
    folder()
    {
        char name[] = "/tmp/verbena-module-XXXXXX";
        path_ = ::mkdtemp(name);
    }
    folder(const folder&) = delete;
    ~folder() { std::filesystem::remove_all(path_); }
    const std::string& path() const { return path_; }
    std::string write(const std::string& content, mode_t mode = 0644) const
    {
        const std::string name = path_ + "/module.so";
        std::ofstream(name, std::ios::binary | std::ios::trunc) << content;
        BOOST_TEST(::chmod(name.c_str(), mode) == 0);
        return name;
    }

private:
    std::string path_;
};

std::string said_by_loading(const std::string& path)
{
    module_table table;
    try {
        load_module(table, path);
    } catch (const config_error& e) {
        return e.what();
    }
    return {};
}

bool holds(const std::string& text, std::string_view part)
{
    BOOST_TEST_INFO_SCOPE(text);
    return text.find(part) != std::string::npos;
}

} // namespace

BOOST_AUTO_TEST_CASE(a_note_is_read_line_by_line)
{
    const folder f;
    const std::string others = note_of(std::string("GNU", 4), 3, "a build id");
    const module_note note = read_module_note(f.write(object_with(
        others + note_of(our_name, 1, std::string("role=x\nc++ abi=a=b\nnothing\n\0more=1\n", 33)))));
    BOOST_REQUIRE(note.lines.size() == 2U);
    BOOST_TEST(note.value_of("role") == "x");
    BOOST_TEST(note.value_of("c++ abi=a") == "b");
    BOOST_TEST(note.value_of("more") == "");
}

BOOST_AUTO_TEST_CASE(one_that_fits_is_given_to_the_loader)
{
    const folder f;
    BOOST_TEST(holds(said_by_loading(f.write(fitting())), "can't be loaded: "));
}

BOOST_AUTO_TEST_CASE(what_differs_is_told_from_both_sides)
{
    const folder f;
    std::string text = text_of(own_module_note("program"));
    const std::size_t at = text.find("compiler=") + std::strlen("compiler=");
    text.replace(at, text.find('\n', at) - at, "borland 1");
    const std::string said = said_by_loading(f.write(object_with(note_of(our_name, 1, text))));
    BOOST_TEST(holds(said, "built against another verbena"));
    BOOST_TEST(holds(said, "compiler: the module has borland 1, this program "));
    BOOST_TEST(
        holds(said_by_loading(f.write(object_with(note_of(our_name, 1, "role=x\n")))), "of the role \"x\""));
    module_note without = own_module_note("program");
    std::erase_if(without.lines, [](const module_note::line& l) { return l.key == "verbena::rpc::program"; });
    const auto differing = compare(without, own_module_note("program"));
    BOOST_REQUIRE(differing.size() == 1U);
    BOOST_TEST(differing[0].text() == "the type verbena::rpc::program: only this program knows it");
    BOOST_TEST(compare(own_module_note("backend"), own_module_note("backend")).empty());
    BOOST_TEST(own_module_note("nothing").lines.empty());
}

BOOST_AUTO_TEST_CASE(what_a_file_uses_and_nobody_has_is_told)
{
    using list = std::vector<std::string>;
    const folder f;
    const auto missing = [&](const used& u) { return missing_symbols(f.write(object_that_uses(u))); };
    const std::string ours = "_ZN7verbena9not_thereEi";
    BOOST_TEST((missing({{"memcpy", "pthread_create"}, {}, {}}) == list{}));
    BOOST_TEST((missing({{"memcpy", ours, "no_such_function"}, {}, {}}) ==
                list{"verbena::not_there(int)", "no_such_function"}));
    // A library that is here changes nothing; what another one may have nobody knows, unless it is verbena's.
    BOOST_TEST((missing({{ours, "no_such_function"}, {}, {"libc.so.6"}}) ==
                list{"verbena::not_there(int)", "no_such_function"}));
    BOOST_TEST((missing({{ours, "no_such_function"}, {}, {"libc.so.6", "libnobody_has_this.so.9"}}) ==
                list{"verbena::not_there(int)"}));
    BOOST_TEST((missing({{}, {"may_be_missing"}, {}}) == list{}));
    list many;
    for (std::size_t i = 0; i < 2 * max_missing_symbols; ++i)
        many.push_back("no_such_function_" + std::to_string(i));
    BOOST_TEST(missing({many, {}, {}}).size() == max_missing_symbols);
    // One that has no such tables.
    BOOST_TEST(missing_symbols(f.write(fitting())).empty());
}

BOOST_AUTO_TEST_CASE(a_file_that_lies_of_what_it_uses_is_damaged)
{
    const folder f;
    const std::string good = object_that_uses({{"memcpy"}, {}, {"libc.so.6"}});
    const auto said = [&](const auto& edit) {
        std::string file = good;
        edit(file);
        try {
            (void)missing_symbols(f.write(file));
        } catch (const config_error& e) {
            return std::string(e.what());
        }
        return std::string();
    };
    const auto section = [](std::string& file, unsigned index) {
        return reinterpret_cast<Elf64_Shdr*>(file.data() + sizeof(Elf64_Ehdr)) + index;
    };
    BOOST_TEST(said([](std::string&) {}) == "");
    for (std::size_t size = sizeof(Elf64_Ehdr); size < good.size(); size += 7)
        BOOST_TEST(holds(said([size](std::string& file) { file.resize(size); }), "is a damaged ELF file"));
    BOOST_TEST(holds(said([&](std::string& file) { section(file, 1)->sh_link = 4; }), "damaged"));
    BOOST_TEST(
        holds(said([&](std::string& file) { section(file, 1)->sh_offset = ~std::uint64_t(0); }), "damaged"));
    BOOST_TEST(holds(said([&](std::string& file) { section(file, 3)->sh_size = 3; }), "damaged"));
    BOOST_TEST(holds(said([&](std::string& file) { section(file, 1)->sh_size = std::uint64_t(1) << 40; }),
                     "has more symbols, or longer names, than are looked at"));
    BOOST_TEST(
        holds(said([](std::string& file) { reinterpret_cast<Elf64_Ehdr*>(file.data())->e_shentsize = 8; }),
              "damaged"));
}

BOOST_AUTO_TEST_CASE(a_file_that_lies_of_itself_is_damaged)
{
    const folder f;
    const auto said = [&](const std::string& content) { return said_by_loading(f.write(content)); };
    BOOST_TEST(holds(said(""), "damaged"));
    BOOST_TEST(holds(said("#!/bin/sh\n" + std::string(100, ' ')), "is no ELF file"));
    const std::string whole = fitting();
    BOOST_TEST(holds(said(whole.substr(0, whole.size() - 8)), "damaged"));
    BOOST_TEST(holds(said(object_with(note_of(our_name, 1, text_of(own_module_note("program"))), 1u << 30)),
                     "damaged"));
    std::string note = note_of(our_name, 1, "role=program\n");
    for (const std::size_t field : {0u, 4u}) {
        std::string bad = note;
        bad.replace(field, 4, "\xff\xff\xff\xff");
        BOOST_TEST(holds(said(object_with(bad)), "damaged"), field);
    }
    BOOST_TEST(holds(said(object_with(note + note)), "has two notes"));
    BOOST_TEST(holds(said(object_with(note_of(our_name, 2, "role=program\n"))), "has no note"));
    BOOST_TEST(holds(said(object_with(note_of("verbena", 1, "role=program\n"))), "has no note"));
}

BOOST_AUTO_TEST_CASE(nobody_else_may_decide_what_runs)
{
    const folder f;
    for (const mode_t mode : {0664, 0646, 0666})
        BOOST_TEST(holds(said_by_loading(f.write(fitting(), mode)), "others may write to it"), mode);
    BOOST_TEST(::chmod(f.path().c_str(), 0777) == 0);
    BOOST_TEST(
        holds(said_by_loading(f.write(fitting())), "where others may write, and could put another file"));
    BOOST_TEST(::chmod(f.path().c_str(), 01777) == 0);
    BOOST_TEST(holds(said_by_loading(f.write(fitting())), "can't be loaded"));
    if (::geteuid() != 0)
        return; // only root gives files away
    const std::string path = f.write(fitting());
    BOOST_TEST(::chown(path.c_str(), 65534, 65534) == 0);
    BOOST_TEST(holds(said_by_loading(path), "belongs to user 65534"));
    BOOST_TEST(::chown(path.c_str(), 0, 0) == 0);
    BOOST_TEST(::chown(f.path().c_str(), 65534, 65534) == 0);
    BOOST_TEST(holds(said_by_loading(path), "which belongs to user 65534"));
}

BOOST_AUTO_TEST_CASE(a_name_without_a_slash_is_in_the_folder_for_modules)
{
    BOOST_TEST(module_path("./a.so") == "./a.so");
    BOOST_TEST(module_path("kv").ends_with("verbena/modules/kv.so"));
    BOOST_TEST(holds(said_by_loading("/nonexistent/a.so"), "write the path of the module's file"));
    BOOST_TEST(holds(said_by_loading("/tmp"), "is no file that could be a module"));
}

BOOST_AUTO_TEST_SUITE_END()
