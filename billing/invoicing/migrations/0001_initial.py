from typing import Any

import billing.invoicing.models.documents
import billing.invoicing.models.parties
import datetime
import django.contrib.postgres.fields
import django.db.models.deletion
import django.db.models.expressions
import pgtrigger.compiler
import pgtrigger.migrations
from django.db import migrations, models

LOGO = (
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 24 24">'
    '<rect width="24" height="24" rx="5" fill="#3d43c2"/>'
    '<path d="M4 7h4.800l6 7.500H20v4h-7.200L6.900 11H4z" fill="#fff"/>'
    '<path d="M14.500 5v5.500" stroke="#fff" stroke-width="2.200" stroke-linecap="round"/></svg>'
)


def add_legal_entity(apps: Any, schema_editor: Any) -> None:
    """Add the legal entity that the first invoices are from."""
    entities = apps.get_model("invoicing", "LegalEntity").objects
    entities.using(schema_editor.connection.alias).create(
        name="Penstock", address="", country="US", logo_svg=LOGO, is_default=True
    )


class Migration(migrations.Migration):
    initial = True

    dependencies = [
        ('organizations', '0001_initial'),
    ]

    operations = [
        migrations.CreateModel(
            name='Close',
            fields=[
                ('starts_on', models.DateField(primary_key=True, serialize=False)),
                ('started_at', models.DateTimeField()),
                ('run_at', models.DateTimeField()),
                ('finished_at', models.DateTimeField(blank=True, null=True)),
                ('started_by', models.CharField(max_length=254)),
            ],
            options={
                'db_table': 'invoicing_close',
            },
        ),
        migrations.CreateModel(
            name='CloseFailure',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('close', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='failures', to='invoicing.close')),
                ('organization_id', models.CharField(max_length=64)),
                ('reason', models.CharField(max_length=500)),
                ('failed_at', models.DateTimeField()),
            ],
            options={
                'db_table': 'invoicing_close_failure',
                'constraints': [models.UniqueConstraint(fields=('close', 'organization_id'), name='close_failure_is_unique')],
            },
        ),
        migrations.CreateModel(
            name='LegalEntity',
            fields=[
                ('id', models.CharField(default=billing.invoicing.models.parties.new_legal_entity_id, max_length=64, primary_key=True, serialize=False)),
                ('name', models.CharField(max_length=200)),
                ('address', models.TextField(help_text='One per line.', max_length=1000)),
                ('country', models.CharField(help_text='ISO 3166 code, such as DE.', max_length=2)),
                ('region', models.CharField(blank=True, max_length=200)),
                ('tax_ids', models.TextField(blank=True, help_text='One per line, such as VAT DE123456789.', max_length=1000)),
                ('email', models.EmailField(blank=True, max_length=254)),
                ('bank_details', models.TextField(blank=True, help_text='One per line.', max_length=1000)),
                ('footer', models.TextField(blank=True, help_text='Printed on every page.', max_length=1000)),
                ('logo_svg', models.TextField(blank=True, max_length=100000, verbose_name='logo (SVG)')),
                ('tax_calculator', models.CharField(default='rate_table', max_length=40)),
                ('number_prefix', models.CharField(default='INV-', max_length=20)),
                ('next_invoice', models.PositiveBigIntegerField(default=1, editable=False)),
                ('credit_note_prefix', models.CharField(default='CN-', max_length=20)),
                ('next_credit_note', models.PositiveBigIntegerField(default=1, editable=False)),
                ('is_default', models.BooleanField(default=False)),
            ],
            options={
                'verbose_name_plural': 'legal entities',
                'db_table': 'invoicing_legal_entity',
                'constraints': [models.UniqueConstraint(condition=models.Q(('is_default', True)), fields=('is_default',), name='one_legal_entity_is_default'), models.UniqueConstraint(fields=('number_prefix',), name='invoice_prefix_is_unique'), models.UniqueConstraint(fields=('credit_note_prefix',), name='credit_note_prefix_is_unique'), models.CheckConstraint(condition=models.Q(('number_prefix', models.F('credit_note_prefix')), _negated=True), name='prefixes_are_told_apart')],
            },
        ),
        migrations.CreateModel(
            name='BillingProfile',
            fields=[
                ('organization', models.OneToOneField(on_delete=django.db.models.deletion.PROTECT, primary_key=True, related_name='+', serialize=False, to='organizations.organization')),
                ('legal_name', models.CharField(blank=True, max_length=200)),
                ('line1', models.CharField(blank=True, max_length=200, verbose_name='address')),
                ('line2', models.CharField(blank=True, max_length=200, verbose_name='address, second line')),
                ('postal_code', models.CharField(blank=True, max_length=20)),
                ('city', models.CharField(blank=True, max_length=200)),
                ('region', models.CharField(blank=True, max_length=200)),
                ('country', models.CharField(blank=True, max_length=2)),
                ('tax_id', models.CharField(blank=True, max_length=40)),
                ('currency', models.CharField(default='USD', max_length=3)),
                ('recipients', django.contrib.postgres.fields.ArrayField(base_field=models.EmailField(max_length=254), blank=True, default=list, size=None)),
                ('purchase_order', models.CharField(blank=True, max_length=200)),
                ('terms_days', models.PositiveSmallIntegerField(default=14)),
                ('paper', models.CharField(choices=[('a4', 'A4'), ('us-letter', 'Letter')], default='a4', max_length=16)),
                ('legal_entity', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, to='invoicing.legalentity')),
            ],
            options={
                'db_table': 'invoicing_billing_profile',
                'constraints': [models.CheckConstraint(condition=models.Q(('terms_days__lte', 120)), name='terms_are_bounded'), models.CheckConstraint(condition=models.Q(('paper__in', ['a4', 'us-letter'])), name='paper_is_known')],
            },
        ),
        migrations.CreateModel(
            name='TaxRate',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('country', models.CharField(help_text='ISO 3166 code, such as DE.', max_length=2)),
                ('region', models.CharField(blank=True, help_text='As in billing profiles. Empty: the whole country.', max_length=200)),
                ('name', models.CharField(help_text='As printed on the invoice, such as VAT.', max_length=40)),
                ('rate_basis_points', models.PositiveIntegerField(help_text='1900 is 19 %.')),
                ('reverse_charge', models.BooleanField(default=False, help_text='Businesses abroad with a tax ID pay it themselves: none is added, and the invoice says so.')),
                ('starts_on', models.DateField(default=datetime.date(1970, 1, 1))),
            ],
            options={
                'db_table': 'invoicing_tax_rate',
                'constraints': [models.UniqueConstraint(fields=('country', 'region', 'starts_on'), name='tax_rate_is_unique'), models.CheckConstraint(condition=models.Q(('rate_basis_points__lte', 10000)), name='tax_rate_is_a_share')],
            },
        ),
        migrations.CreateModel(
            name='ExchangeRate',
            fields=[
                ('currency', models.CharField(max_length=3, primary_key=True, serialize=False)),
                ('micros', models.PositiveBigIntegerField(help_text='For a dollar: 920000 is 0.92.', verbose_name='millionths of a unit')),
                ('as_of', models.DateField()),
            ],
            options={
                'db_table': 'invoicing_exchange_rate',
                'constraints': [models.CheckConstraint(condition=models.Q(('micros__gt', 0)), name='exchange_rate_is_positive')],
            },
        ),
        migrations.CreateModel(
            name='Invoice',
            fields=[
                ('organization_id', models.CharField(max_length=64)),
                ('legal_entity', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='+', to='invoicing.legalentity')),
                ('number', models.CharField(max_length=40, unique=True)),
                ('sequence', models.PositiveBigIntegerField()),
                ('issued_at', models.DateTimeField()),
                ('net_cents', models.BigIntegerField()),
                ('tax_cents', models.BigIntegerField()),
                ('total_cents', models.BigIntegerField()),
                ('id', models.CharField(default=billing.invoicing.models.documents.new_invoice_id, max_length=64, primary_key=True, serialize=False)),
                ('starts_on', models.DateField()),
                ('ends_on', models.DateField()),
                ('due_on', models.DateField()),
                ('currency', models.CharField(max_length=3)),
                ('collection', models.CharField(max_length=16)),
                ('paper', models.CharField(choices=[('a4', 'A4'), ('us-letter', 'Letter')], max_length=16)),
                ('purchase_order', models.CharField(blank=True, max_length=200)),
                ('buyer', models.JSONField()),
                ('seller', models.JSONField()),
                ('tax', models.JSONField()),
                ('days', models.JSONField()),
                ('usage_nanos', models.BigIntegerField()),
                ('owed_nanos', models.BigIntegerField()),
                ('paid_before_nanos', models.BigIntegerField()),
                ('subtotal_cents', models.BigIntegerField()),
                ('credit_applied_cents', models.BigIntegerField()),
            ],
            options={
                'db_table': 'invoicing_invoice',
                'abstract': False,
                'indexes': [models.Index(fields=['starts_on'], name='invoice_by_month')],
                'constraints': [models.UniqueConstraint(fields=('legal_entity', 'sequence'), name='invoice_sequence_is_unique'), models.CheckConstraint(condition=models.Q(('total_cents', django.db.models.expressions.CombinedExpression(models.F('net_cents'), '+', models.F('tax_cents')))), name='invoice_adds_up'), models.UniqueConstraint(fields=('organization_id', 'starts_on'), name='month_is_invoiced_once'), models.CheckConstraint(condition=models.Q(('net_cents', django.db.models.expressions.CombinedExpression(models.F('subtotal_cents'), '-', models.F('credit_applied_cents')))), name='invoice_credit_is_applied'), models.CheckConstraint(condition=models.Q(('credit_applied_cents__gte', 0), ('net_cents__gte', 0), ('owed_nanos__gte', 0), ('owed_nanos__lte', models.F('usage_nanos')), ('paid_before_nanos__gte', 0), ('paid_before_nanos__lte', django.db.models.expressions.CombinedExpression(models.F('total_cents'), '*', models.Value(10000000))), ('tax_cents__gte', 0)), name='invoice_not_negative')],
            },
        ),
        migrations.CreateModel(
            name='InvoiceLine',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('invoice', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='lines', to='invoicing.invoice')),
                ('organization_id', models.CharField(max_length=64)),
                ('position', models.PositiveIntegerField()),
                ('model_id', models.CharField(max_length=64)),
                ('model_name', models.CharField(max_length=200)),
                ('variant_id', models.CharField(max_length=64)),
                ('variant_name', models.CharField(max_length=200)),
                ('tier', models.CharField(max_length=16)),
                ('price_id', models.CharField(max_length=64)),
                ('input_tokens_min', models.PositiveBigIntegerField()),
                ('meter', models.CharField(choices=[('input', 'Input tokens'), ('cached_input', 'Cached input tokens'), ('output', 'Output tokens')], max_length=16)),
                ('received_on', models.DateField()),
                ('quantity_tokens', models.BigIntegerField()),
                ('unit_price_nanos', models.BigIntegerField()),
                ('amount_nanos', models.BigIntegerField()),
                ('amount_cents', models.BigIntegerField()),
            ],
            options={
                'db_table': 'invoicing_invoice_line',
                'constraints': [models.UniqueConstraint(fields=('invoice', 'position'), name='line_has_its_place'), models.CheckConstraint(condition=models.Q(('amount_cents__gte', 0), ('amount_nanos__gt', 0)), name='line_is_positive')],
            },
        ),
        migrations.CreateModel(
            name='CreditNote',
            fields=[
                ('organization_id', models.CharField(max_length=64)),
                ('legal_entity', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='+', to='invoicing.legalentity')),
                ('number', models.CharField(max_length=40, unique=True)),
                ('sequence', models.PositiveBigIntegerField()),
                ('issued_at', models.DateTimeField()),
                ('net_cents', models.BigIntegerField()),
                ('tax_cents', models.BigIntegerField()),
                ('total_cents', models.BigIntegerField()),
                ('id', models.CharField(default=billing.invoicing.models.documents.new_credit_note_id, max_length=64, primary_key=True, serialize=False)),
                ('invoice', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='credit_notes', to='invoicing.invoice')),
                ('idempotency_key', models.CharField(max_length=200)),
                ('reason', models.CharField(max_length=200)),
                ('issued_by', models.CharField(max_length=254)),
                ('settled_nanos', models.BigIntegerField()),
            ],
            options={
                'db_table': 'invoicing_credit_note',
                'abstract': False,
                'constraints': [models.UniqueConstraint(fields=('legal_entity', 'sequence'), name='creditnote_sequence_is_unique'), models.CheckConstraint(condition=models.Q(('total_cents', django.db.models.expressions.CombinedExpression(models.F('net_cents'), '+', models.F('tax_cents')))), name='creditnote_adds_up'), models.UniqueConstraint(fields=('organization_id', 'idempotency_key'), name='credit_note_is_made_once'), models.CheckConstraint(condition=models.Q(('net_cents__gt', 0), ('settled_nanos__gte', 0), ('tax_cents__gte', 0)), name='credit_note_is_positive')],
            },
        ),
        migrations.CreateModel(
            name='CreditNoteLine',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('credit_note', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='lines', to='invoicing.creditnote')),
                ('line', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='credits', to='invoicing.invoiceline')),
                ('organization_id', models.CharField(max_length=64)),
                ('amount_cents', models.BigIntegerField()),
            ],
            options={
                'db_table': 'invoicing_credit_note_line',
                'constraints': [models.UniqueConstraint(fields=('credit_note', 'line'), name='line_is_credited_once_a_note'), models.CheckConstraint(condition=models.Q(('amount_cents__gt', 0)), name='credited_amount_is_positive')],
            },
        ),
        migrations.CreateModel(
            name='InvoicePayment',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('invoice', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='payments', to='invoicing.invoice')),
                ('organization_id', models.CharField(max_length=64)),
                ('nanos', models.BigIntegerField()),
                ('cause', models.CharField(max_length=40)),
                ('payment_id', models.CharField(blank=True, max_length=64)),
                ('settled_at', models.DateTimeField()),
            ],
            options={
                'db_table': 'invoicing_invoice_payment',
                'indexes': [models.Index(fields=['organization_id'], name='invoice_payment_by_org')],
                'constraints': [models.CheckConstraint(condition=models.Q(('nanos', 0), _negated=True), name='payment_moves_money')],
            },
        ),
        migrations.CreateModel(
            name='Dispute',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('invoice', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='disputes', to='invoicing.invoice')),
                ('organization_id', models.CharField(max_length=64)),
                ('key', models.CharField(max_length=200)),
                ('reason', models.CharField(max_length=200)),
                ('opened_at', models.DateTimeField()),
                ('closed_at', models.DateTimeField(blank=True, null=True)),
            ],
            options={
                'db_table': 'invoicing_dispute',
                'constraints': [models.UniqueConstraint(fields=('invoice', 'key'), name='dispute_is_opened_once')],
            },
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='invoice',
            trigger=pgtrigger.compiler.Trigger(name='invoice_stays', sql=pgtrigger.compiler.UpsertTriggerSql(func="RAISE EXCEPTION 'pgtrigger: Cannot update or delete rows from % table', TG_TABLE_NAME;", hash='8df6fd98642ca55b926074bc612c73c514c1d6b2', operation='UPDATE OR DELETE', pgid='pgtrigger_invoice_stays_e69cd', table='invoicing_invoice', when='BEFORE')),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='invoice',
            trigger=pgtrigger.compiler.Trigger(name='invoice_all_stay', sql=pgtrigger.compiler.UpsertTriggerSql(func="\nRAISE EXCEPTION 'TRUNCATE of % is refused: it holds facts', TG_TABLE_NAME\n    USING ERRCODE = 'restrict_violation';\n", hash='b3e583d9671a0eda93d6d45f5a455cfe69d893fc', level='STATEMENT', operation='TRUNCATE', pgid='pgtrigger_invoice_all_stay_553b6', table='invoicing_invoice', when='BEFORE')),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='invoiceline',
            trigger=pgtrigger.compiler.Trigger(name='line_stays', sql=pgtrigger.compiler.UpsertTriggerSql(func="RAISE EXCEPTION 'pgtrigger: Cannot update or delete rows from % table', TG_TABLE_NAME;", hash='f4ccc1e41ee1a3114946abc9e6503ee19f181137', operation='UPDATE OR DELETE', pgid='pgtrigger_line_stays_2484e', table='invoicing_invoice_line', when='BEFORE')),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='invoiceline',
            trigger=pgtrigger.compiler.Trigger(name='line_all_stay', sql=pgtrigger.compiler.UpsertTriggerSql(func="\nRAISE EXCEPTION 'TRUNCATE of % is refused: it holds facts', TG_TABLE_NAME\n    USING ERRCODE = 'restrict_violation';\n", hash='2eb4ca6691ab917505324794a34f579cdc27acf2', level='STATEMENT', operation='TRUNCATE', pgid='pgtrigger_line_all_stay_97c38', table='invoicing_invoice_line', when='BEFORE')),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='creditnote',
            trigger=pgtrigger.compiler.Trigger(name='credit_note_stays', sql=pgtrigger.compiler.UpsertTriggerSql(func="RAISE EXCEPTION 'pgtrigger: Cannot update or delete rows from % table', TG_TABLE_NAME;", hash='b9418d3974c37e53acfd9015d14b0bcbd7734b5c', operation='UPDATE OR DELETE', pgid='pgtrigger_credit_note_stays_9cd38', table='invoicing_credit_note', when='BEFORE')),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='creditnote',
            trigger=pgtrigger.compiler.Trigger(name='credit_note_all_stay', sql=pgtrigger.compiler.UpsertTriggerSql(func="\nRAISE EXCEPTION 'TRUNCATE of % is refused: it holds facts', TG_TABLE_NAME\n    USING ERRCODE = 'restrict_violation';\n", hash='67890af34a87a5ecabfa302b95e2f59fcd7d8d0b', level='STATEMENT', operation='TRUNCATE', pgid='pgtrigger_credit_note_all_stay_e5dec', table='invoicing_credit_note', when='BEFORE')),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='creditnoteline',
            trigger=pgtrigger.compiler.Trigger(name='credit_note_line_stays', sql=pgtrigger.compiler.UpsertTriggerSql(func="RAISE EXCEPTION 'pgtrigger: Cannot update or delete rows from % table', TG_TABLE_NAME;", hash='97b917e9884e1cdd320e38ef1f86b4af13349194', operation='UPDATE OR DELETE', pgid='pgtrigger_credit_note_line_stays_e55f5', table='invoicing_credit_note_line', when='BEFORE')),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='creditnoteline',
            trigger=pgtrigger.compiler.Trigger(name='credit_note_line_all_stay', sql=pgtrigger.compiler.UpsertTriggerSql(func="\nRAISE EXCEPTION 'TRUNCATE of % is refused: it holds facts', TG_TABLE_NAME\n    USING ERRCODE = 'restrict_violation';\n", hash='5f05ebb1de18572accba7ad570f7464e0c80d31b', level='STATEMENT', operation='TRUNCATE', pgid='pgtrigger_credit_note_line_all_stay_15f59', table='invoicing_credit_note_line', when='BEFORE')),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='invoicepayment',
            trigger=pgtrigger.compiler.Trigger(name='invoice_payment_stays', sql=pgtrigger.compiler.UpsertTriggerSql(func="RAISE EXCEPTION 'pgtrigger: Cannot update or delete rows from % table', TG_TABLE_NAME;", hash='4e8aa33acbd969e198cb2df155d3955961b9c651', operation='UPDATE OR DELETE', pgid='pgtrigger_invoice_payment_stays_95427', table='invoicing_invoice_payment', when='BEFORE')),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='invoicepayment',
            trigger=pgtrigger.compiler.Trigger(name='invoice_payment_all_stay', sql=pgtrigger.compiler.UpsertTriggerSql(func="\nRAISE EXCEPTION 'TRUNCATE of % is refused: it holds facts', TG_TABLE_NAME\n    USING ERRCODE = 'restrict_violation';\n", hash='451f0b3a56b592246404fec05cd6e10c40c0a797', level='STATEMENT', operation='TRUNCATE', pgid='pgtrigger_invoice_payment_all_stay_17912', table='invoicing_invoice_payment', when='BEFORE')),
        ),
        migrations.RunPython(add_legal_entity, migrations.RunPython.noop),
    ]
