// SPDX-License-Identifier: Apache-2.0
#include "command_line.hpp"

#include "../standard_output.hpp"
#include "../unknown_words.hpp"

#include <verbena/core/module/module_file.hpp>
#include <verbena/core/printable.hpp>
#include <verbena/services/config_file.hpp>

#include <CLI/CLI.hpp>

#include <algorithm>
#include <array>
#include <list>
#include <sstream>

namespace verbena::daemon {

namespace {

const setting& setting_of(const std::vector<setting>& all, std::string_view name)
{
    const auto found = std::ranges::find(all, name, &setting::name);
    if (found == all.end())
        throw std::logic_error("no settings " + std::string(name));
    return *found;
}

setting_values::value table_value(setting_values t)
{
    setting_values::value v{setting_values::value::tables{std::move(t)}};
    v.is_table = true;
    return v;
}

// The options of one command, and the settings that they are.
class command_options {
public:
    // `s` as --NAME, or as `called`, if nothing has that option yet; what a table holds as --TABLE-NAME. `table` is a path: "nfs.limits".
    void add(CLI::App& to, std::string table, const setting& s, const std::string& called = {})
    {
        if (s.kind == setting_kind::table) {
            for (const setting& inner : s.inner)
                add(to, table + '.' + s.name, inner, s.name + '-' + inner.name);
            return;
        }
        std::string name = "--" + (called.empty() ? s.name : called);
        std::ranges::replace(name, '_', '-');
        if (to.get_option_no_throw(name) != nullptr ||
            (s.kind == setting_kind::tables && s.parse_word == nullptr))
            return;
        option& o = options_.emplace_back(option{std::move(table), s, name, {}});
        CLI::Option* made = nullptr;
        if (s.kind == setting_kind::flag) {
            made = to.add_flag(name, o.words, help_of(s));
        } else {
            made = to.add_option(name, o.words, help_of(s))->expected(1)->allow_extra_args(false);
            if (s.kind == setting_kind::list || s.kind == setting_kind::tables)
                made->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
            made->type_name(form_of(s));
        }
    }
    // What was given, into the tables of a configuration.
    void store(setting_values& root) const
    {
        for (const option& o : options_) {
            if (o.words.empty())
                continue;
            setting_values* at = &root;
            for (std::size_t begin = 0; at != nullptr && begin <= o.table.size();) {
                const std::size_t end = std::min(o.table.find('.', begin), o.table.size());
                const std::string name = o.table.substr(begin, end - begin);
                if (at->find(name) == nullptr)
                    at->set(name, table_value(setting_values()));
                // Of another kind in a file: check() refuses it.
                auto* tables = std::get_if<setting_values::value::tables>(&at->find(name)->data);
                at = tables != nullptr && !tables->empty() ? &tables->front() : nullptr;
                begin = end + 1;
            }
            if (at != nullptr)
                at->set(o.declared.name, value_of(o));
        }
    }

private:
    struct option {
        std::string table;
        setting declared;
        std::string name;
        std::vector<std::string> words;
    };

    // What it is unless it is written, where the help does not say so.
    static std::string help_of(const setting& s)
    {
        if (s.help.find("default") != std::string::npos)
            return s.help;
        const bool number = s.kind == setting_kind::number && !s.is_optional;
        const std::string standard = number ? std::to_string(s.default_number) : s.default_text;
        return s.help + (standard.empty() ? "" : " (default: " + standard + ")");
    }
    static std::string form_of(const setting& s)
    {
        if (!s.value_form.empty())
            return s.value_form;
        return s.kind == setting_kind::number ? "N" : s.kind == setting_kind::word ? "NAME" : "TEXT";
    }
    static setting_values::value value_of(const option& o)
    {
        using value = setting_values::value;
        if (o.declared.kind == setting_kind::tables) {
            value::tables tables;
            for (const std::string& word : o.words)
                tables.push_back(o.declared.parse_word(word));
            return value{std::move(tables)};
        }
        if (o.declared.kind == setting_kind::list)
            return value{o.words};
        value v{setting_values::word{o.words.back()}};
        v.option = o.name + ' ' + o.words.back() + ':';
        return v;
    }

    std::list<option> options_; // the parser keeps pointers to its words
};

constexpr std::string_view module_option = "--module";

// Those that stand in front of the command.
std::vector<std::string> named_modules(int argc, const char* const* argv)
{
    std::vector<std::string> names;
    for (int i = 1; i < argc; ++i) {
        const std::string_view word = argv[i];
        if (word == module_option && i + 1 < argc)
            names.emplace_back(argv[++i]);
        else if (word.starts_with(module_option) && word.substr(module_option.size()).starts_with('='))
            names.emplace_back(word.substr(module_option.size() + 1));
        else if (!word.starts_with('-'))
            break;
    }
    return names;
}

} // namespace

std::string list_of_modules(const module_table& modules)
{
    std::vector<std::array<std::string, 6>> rows = {
        {"NAME", "VERSION", "ROLE", "NEEDS", "FROM", "WHAT IT IS"}};
    for (const module_table::entry& e : modules.all()) {
        std::string needs;
        for (const char* const* n = e.descriptor->needs; n != nullptr && *n != nullptr; ++n)
            needs += (needs.empty() ? "" : " ") + std::string(*n);
        rows.push_back({std::string(e.name()), e.descriptor->version, std::string(e.object->role()),
                        needs.empty() ? "-" : needs, e.from, e.descriptor->summary});
    }
    std::array<std::size_t, 6> widths{};
    for (const auto& row : rows) {
        for (std::size_t i = 0; i < row.size(); ++i)
            widths[i] = std::max(widths[i], row[i].size());
    }
    std::string text;
    for (const auto& row : rows) {
        for (std::size_t i = 0; i + 1 < row.size(); ++i)
            text += printable(row[i]) + std::string(widths[i] - row[i].size() + 2, ' ');
        text += printable(row.back()) + '\n';
    }
    return text;
}

int check_modules(const std::vector<std::string>& files)
{
    int status = 0;
    for (const std::string& name : files) {
        const std::string path = module_path(name);
        try {
            const module_note note = read_module_note(path);
            const std::string role(note.value_of("role"));
            const auto differing = compare(note, own_module_note(role));
            const auto missing = differing.empty() ? missing_symbols(path) : std::vector<std::string>();
            if (!missing.empty()) {
                status = 1;
                print("%s: does not fit: it uses what neither it nor this program has: link it, or declare "
                      "it as this version's headers do\n",
                      printable(path).c_str());
                for (const std::string& name : missing)
                    print("  %s\n", printable(name).c_str());
                continue;
            }
            if (differing.empty()) {
                print("%s: fits: a module of the role %s, built with %s\n", printable(path).c_str(),
                      role.c_str(), std::string(note.value_of("compiler")).c_str());
                continue;
            }
            status = 1;
            print("%s: does not fit: build it again, with the same compiler, against the headers of this "
                  "version\n",
                  printable(path).c_str());
            for (const module_mismatch& m : differing)
                print("  %s\n", printable(m.text()).c_str());
        } catch (const config_error& e) {
            status = 1;
            print("%s\n", printable_lines(e.what()).c_str());
        }
    }
    return status;
}

parsed_command_line parse_command_line(int argc, const char* const* argv, service& s)
{
    // Which commands there are depends on the modules, so that those come first.
    for (const std::string& name : named_modules(argc, argv))
        load_module(s.modules(), module_path(name));
    CLI::App app("verbenad: serves files and other things over TCP and over RDMA (iWARP in user space)",
                 "verbenad");
    app.set_version_flag("--version", std::string("verbenad ") + VERBENA_VERSION);
    app.require_subcommand(1);
    std::vector<std::string> module_files;
    app.add_option(std::string(module_option), module_files,
                   "Load this module first, from a file or by its name in " VERBENA_MODULE_DIRECTORY
                   "; repeated for more. In front of the command")
        ->expected(1)
        ->allow_extra_args(false)
        ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
        ->type_name("FILE");

    const std::vector<setting> settings = s.settings();
    const setting& log_level = setting_of(setting_of(settings, "daemon").inner, "log_level");
    std::list<std::pair<CLI::App*, command_options>> protocols;
    std::string example;
    for (const setting& t : settings) {
        // Those without listeners of their own come with another.
        if (t.kind != setting_kind::table || !t.is_optional ||
            std::ranges::find(t.inner, "listen", &setting::name) == t.inner.end())
            continue;
        CLI::App* to = app.add_subcommand(t.name, "Serve what the command line describes: " + t.help);
        command_options& options = protocols.emplace_back(to, command_options()).second;
        for (const setting& own : t.inner)
            options.add(*to, t.name, own);
        options.add(*to, "metrics", setting_of(setting_of(settings, "metrics").inner, "listen"), "metrics");
        for (const setting& own : setting_of(settings, "daemon").inner)
            options.add(*to, "daemon", own);
        options.add(*to, "memory", setting_of(setting_of(settings, "memory").inner, "huge_pages"));
        if (example.empty() && std::ranges::find(t.inner, "export", &setting::name) != t.inner.end())
            example = "verbenad " + t.name + " --export /srv/data";
    }
    app.footer("Example: " + (example.empty() ? std::string("verbenad serve verbenad.toml") : example));

    std::string file;
    bool check = false;
    bool quiet = false;
    CLI::App* serve = app.add_subcommand("serve", "Serve what a configuration file describes");
    serve->add_option("CONFIG.toml", file, "The configuration file")->required();
    CLI::Option* const check_option =
        serve->add_flag("--check", check, "Print the effective configuration and exit");
    serve->add_flag("--quiet", quiet, "With --check: print nothing but what is wrong")->needs(check_option);
    command_options of_serve;
    of_serve.add(*serve, "daemon", log_level);

    std::string modules_of;
    CLI::App* modules = app.add_subcommand("modules", "List the modules that are built in or loaded");
    modules->add_option("CONFIG.toml", modules_of, "Also those that this file loads");
    command wanted;
    CLI::App* one_module = app.add_subcommand("module", "About files of modules");
    one_module->require_subcommand(1);
    CLI::App* check_files =
        one_module->add_subcommand("check", "Say whether files fit this program; loads nothing");
    check_files->add_option("FILE", wanted.files, "A path, or a name in " VERBENA_MODULE_DIRECTORY)
        ->required();

    try {
        app.parse(argc, argv);
    } catch (const CLI::ParseError& e) {
        if (const std::string said = unknown_word(app); e.get_exit_code() != 0 && !said.empty())
            throw config_error(said + (serve->parsed() ? "; all else stands in the file" : ""));
        if (e.get_exit_code() == 0)
            return {{}, app.exit(e)};
        std::ostringstream out, said; // CLI11 would write it by itself, which the journal takes for no error
        app.exit(e, out, said);
        std::string text = said.str();
        text.erase(text.find_last_not_of('\n') + 1);
        throw config_error(text);
    }

    if (modules->parsed()) {
        wanted.kind = command_kind::modules;
        if (!modules_of.empty())
            load_modules(load_config(modules_of), s.modules());
    }
    if (check_files->parsed())
        wanted.kind = command_kind::check_module;
    if (serve->parsed()) {
        wanted.file = file;
        of_serve.store(wanted.settings);
        if (check)
            wanted.kind = command_kind::check;
        wanted.quiet = quiet;
    }
    for (const auto& [app_of, options] : protocols) {
        if (!app_of->parsed())
            continue;
        wanted.settings.set(app_of->get_name(), table_value(setting_values()));
        options.store(wanted.settings);
    }
    return {std::move(wanted), 0};
}

} // namespace verbena::daemon
