// SPDX-License-Identifier: Apache-2.0
// Settings: after '-' the argument of --export, else a TOML file with a table [nfs]. A file that is accepted must
// print as TOML that reads back as itself; a path of --export need not be UTF-8, which TOML can't say.

#include "fuzz.hpp"

#include <verbena/services/config_file.hpp>

#include <verbena/core/module/module.hpp>
#include <verbena/plugins/modules.hpp>

#include <algorithm>
#include <string>
#include <string_view>

using namespace verbena;

namespace {

// As a service completes what its modules are told.
void complete(setting_values& root)
{
    module_table table;
    for (const module_descriptor* m : {&modules::memfs, &modules::nfs, &modules::posixfs})
        table.add(*m);
    module& nfs = *table.find("nfs");
    check({setting::table("nfs", nfs.settings(), "NFS")}, root);
    nfs.configure(std::get<setting_values::value::tables>(root.find("nfs")->data).front(), table);
}

setting_values exporting(std::string_view word)
{
    module_table table;
    table.add(modules::nfs);
    const auto settings = table.find("nfs")->settings();
    setting_values nfs;
    nfs.set("export", {setting_values::value::tables{
                          std::ranges::find(settings, "export", &setting::name)->parse_word(word)}});
    setting_values::value v{setting_values::value::tables{std::move(nfs)}};
    v.is_table = true;
    setting_values root;
    root.set("nfs", std::move(v));
    return root;
}

} // namespace

VERBENA_FUZZ_TARGET(config)
{
    const std::string_view text(reinterpret_cast<const char*>(data), size);
    setting_values c;
    try {
        c = text.starts_with('-') ? exporting(text.substr(1)) : parse_config(text, "fuzz");
        complete(c);
    } catch (const config_error&) {
        return 0;
    }
    if (text.starts_with('-'))
        return 0;
    const std::string printed = to_toml(c);
    setting_values again = parse_config(printed, "again");
    complete(again);
    fuzz::require(to_toml(again) == printed);
    return 0;
}
